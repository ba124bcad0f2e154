// Columns, and the values of rows as Ruby objects.
#include "db/mysql/protocol.h"

#include "references.h"

#include <string.h>

// Values of a row that are read before they are appended to an Array.
enum { ROW_GATHERED = 64 };

// Values of at least this many bytes are shared instead of copied.
enum { SHARED = 32 << 10 };

VALUE mysql_cColumns;
static VALUE cDate, cDuration, mCalendar;
static ID id_jd, id_day, id_big_decimal, id_new, id_local;

// ---- columns

static void mysql_columns_references(void *pointer, reference_function *each)
{
    struct mysql_columns *columns = pointer;
    each(&columns->names);
}

REFERENCES(mysql_columns)

static void mysql_columns_release(void *pointer)
{
    struct mysql_columns *columns = pointer;
    xfree(columns->definitions.at);
    xfree(columns);
}

static size_t columns_size(uint32_t count)
{
    return sizeof(struct mysql_columns) + count * (sizeof(struct mysql_field) + sizeof(int));
}

static size_t mysql_columns_memsize(const void *pointer)
{
    const struct mysql_columns *columns = pointer;
    return columns_size(columns->count) + columns->definitions.capacity;
}

static const rb_data_type_t columns_type = {
    .wrap_struct_name = "Heddle::DB::MySQL::Columns",
    .function = {.dmark = mysql_columns_mark,
                 .dfree = mysql_columns_release,
                 .dsize = mysql_columns_memsize,
                 .dcompact = mysql_columns_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

struct mysql_columns *mysql_columns_of(VALUE self)
{
    return rb_check_typeddata(self, &columns_type);
}

VALUE mysql_columns_new(uint32_t count)
{
    VALUE self = rb_data_typed_object_zalloc(mysql_cColumns, columns_size(count), &columns_type);
    struct mysql_columns *columns = RTYPEDDATA_DATA(self);
    columns->names = Qnil;
    columns->described = rb_utf8_encoding();
    columns->fields = (struct mysql_field *)(columns->encodings + count);
    columns->count = count;
    return self;
}

VALUE mysql_columns_anew(VALUE self, uint32_t count)
{
    if (NIL_P(self)) return mysql_columns_new(count);
    struct mysql_columns *columns = mysql_columns_of(self);
    if (!columns->fresh || columns->count != count) return mysql_columns_new(count);
    columns->definitions.length = 0;
    columns->copies = columns->times = false;
    return self;
}

static bool mysql_is_text(const struct mysql_column *column)
{
    if (column->type == MYSQL_JSON) return true; // declared binary, and never is
    return column->charset != MYSQL_CHARSET_BINARY && column->type != MYSQL_GEOMETRY;
}

void mysql_columns_define(struct mysql_protocol *protocol, VALUE self, uint32_t index, struct mysql_span definition)
{
    struct mysql_columns *columns = mysql_columns_of(self);
    struct mysql_column column;
    if (!mysql_column(definition.at, definition.at + definition.length, &column))
        db_protocol_violated(&protocol->base, "sent a malformed column definition");
    columns->described = protocol->encoding;
    columns->fields[index] =
        (struct mysql_field){.type = column.type,
                             .is_unsigned = column.flags & MYSQL_FLAG_UNSIGNED,
                             .is_boolean = protocol->booleans && column.type == MYSQL_TINY && column.length == 1};
    columns->encodings[index] = mysql_is_text(&column) ? rb_enc_to_index(protocol->encoding) : rb_ascii8bit_encindex();
    switch (column.type) {
    case MYSQL_DECIMAL:
    case MYSQL_NEWDECIMAL:
    case MYSQL_DATE:
    case MYSQL_NEWDATE:
    case MYSQL_TIME: columns->copies = true; break;
    case MYSQL_DATETIME:
    case MYSQL_TIMESTAMP: columns->times = true; break;
    default: break;
    }
    uint32_t length = (uint32_t)definition.length;
    mysql_bytes_append(&columns->definitions, &length, sizeof(length));
    mysql_bytes_append(&columns->definitions, definition.at, length);
    RB_GC_GUARD(self);
}

// Calls the function with each definition.
static void each_definition(const struct mysql_columns *columns,
                            void (*each)(const struct mysql_columns *, const struct mysql_column *, VALUE), VALUE to)
{
    for (size_t at = 0; at < columns->definitions.length;) {
        uint32_t length;
        memcpy(&length, columns->definitions.at + at, sizeof(length));
        const uint8_t *p = columns->definitions.at + at + sizeof(length);
        struct mysql_column column;
        if (mysql_column(p, p + length, &column)) each(columns, &column, to);
        at += sizeof(length) + length;
    }
}

static VALUE mysql_text_of(const struct mysql_columns *columns, struct mysql_span span)
{
    const char *bytes = (const char *)span.at;
    if (columns->described == rb_utf8_encoding())
        return rb_enc_interned_str(bytes, (long)span.length, rb_utf8_encoding());
    return rb_str_to_interned_str(server_utf8(bytes, span.length, columns->described));
}

static void add_name(const struct mysql_columns *columns, const struct mysql_column *column, VALUE names)
{
    rb_ary_push(names, mysql_text_of(columns, column->name));
}

static void add_description(const struct mysql_columns *columns, const struct mysql_column *column, VALUE descriptions)
{
    VALUE fields[] = {mysql_text_of(columns, column->name),
                      INT2FIX(column->type),
                      INT2FIX(column->flags),
                      INT2FIX(column->charset),
                      UINT2NUM(column->length),
                      INT2FIX(column->decimals),
                      mysql_text_of(columns, column->table),
                      mysql_text_of(columns, column->original_table),
                      mysql_text_of(columns, column->original_name),
                      mysql_text_of(columns, column->schema)};
    rb_ary_push(descriptions, rb_ary_new_from_values(10, fields));
}

/* call-seq: columns.names -> Array of String */
static VALUE mysql_names(VALUE self)
{
    struct mysql_columns *columns = mysql_columns_of(self);
    if (!NIL_P(columns->names)) return columns->names;
    VALUE array = rb_ary_new_capa((long)columns->count);
    each_definition(columns, add_name, array);
    RB_OBJ_WRITE(self, &columns->names, rb_obj_freeze(array));
    RB_GC_GUARD(self);
    return array;
}

/* @api private columns.descriptions: for each column: name, type, flags, charset, length, decimals, table, … */
static VALUE descriptions(VALUE self)
{
    VALUE array = rb_ary_new();
    each_definition(mysql_columns_of(self), add_description, array);
    RB_GC_GUARD(self);
    return array;
}

static void add_kind(const struct mysql_columns *columns, const struct mysql_column *column, VALUE kinds)
{
    (void)columns;
    int length = column->length < 255 ? (int)column->length : 255;
    int whole = column->decimals ? 0 : 1 << 17;
    rb_ary_push(kinds, INT2FIX(column->type | (mysql_is_text(column) ? 0 : 1 << 8) | length << 9 | whole));
}

/* @api private columns.kinds -> Array of Integer. Of each column the type's number, plus 256 for bytes, plus 512 times
 * the length, which counts up to 255, plus 131072 for a scale of 0. */
static VALUE kinds(VALUE self)
{
    const struct mysql_columns *columns = mysql_columns_of(self);
    VALUE array = rb_ary_new_capa((long)columns->count);
    each_definition(columns, add_kind, array);
    RB_GC_GUARD(self);
    return array;
}

/* call-seq: columns.size -> Integer */
static VALUE size(VALUE self)
{
    return UINT2NUM(mysql_columns_of(self)->count);
}

// ---- values

static VALUE date_value(const struct mysql_moment *moment)
{
    VALUE day = LL2NUM(mysql_days(moment) + 2440588);
    if (moment->year < 1583) return rb_funcall(mCalendar, id_day, 1, day);
    return rb_funcall(cDate, id_jd, 1, day);
}

static VALUE time_value(const struct mysql_protocol *protocol, const struct mysql_moment *moment)
{
    if (protocol->local)
        return rb_funcall(rb_cTime, id_local, 7, INT2FIX(moment->year), INT2FIX(moment->month), INT2FIX(moment->day),
                          INT2FIX(moment->hour), INT2FIX(moment->minute), INT2FIX(moment->second),
                          UINT2NUM(moment->microsecond));
    int64_t seconds = ((mysql_days(moment) * 24 + moment->hour) * 60 + moment->minute) * 60 + moment->second;
    struct timespec spec = {.tv_sec = (time_t)seconds, .tv_nsec = (long)moment->microsecond * 1000};
    return rb_time_timespec_new(&spec, INT_MAX - 1); // in UTC
}

static VALUE decimal_value(struct mysql_span span)
{
    return rb_funcall(rb_mKernel, id_big_decimal, 1, rb_usascii_str_new((const char *)span.at, (long)span.length));
}

// A value at the end of a large packet that was received as a String: shares that String's bytes. Otherwise 0.
static VALUE shared_value(const struct mysql_protocol *protocol, struct mysql_span span)
{
    if (!protocol->whole) return 0;
    const uint8_t *begin = (const uint8_t *)RSTRING_PTR(protocol->separate);
    long length = RSTRING_LEN(protocol->separate), before = length - (long)span.length;
    // A small value would keep the whole packet alive.
    if (before > length / 4 || span.at != begin + before) return 0;
    return rb_str_subseq(protocol->separate, before, (long)span.length);
}

// Like rb_enc_str_new, without looking up the encoding.
static VALUE string_value(const struct mysql_protocol *protocol, struct mysql_span span, int encoding)
{
    VALUE string = span.length >= SHARED ? shared_value(protocol, span) : 0;
    if (!string) string = rb_str_new((const char *)span.at, (long)span.length);
    if (encoding < RUBY_ENCODING_INLINE_MAX) {
        RB_ENCODING_SET_INLINED(string, encoding);
    } else {
        rb_enc_associate_index(string, encoding);
    }
    return string;
}

static inline VALUE mysql_value_of(const struct mysql_protocol *protocol, const struct mysql_value *value, int encoding)
{
    switch (value->kind) {
    case MYSQL_IS_INTEGER: return LL2NUM(value->integer);
    case MYSQL_IS_UNSIGNED: return ULL2NUM(value->unsigned_integer);
    case MYSQL_IS_BOOLEAN: return value->integer ? Qtrue : Qfalse;
    case MYSQL_IS_FLOAT: return DBL2NUM(value->number);
    case MYSQL_IS_BYTES: return string_value(protocol, value->bytes, encoding);
    case MYSQL_IS_DECIMAL: return decimal_value(value->bytes);
    case MYSQL_IS_DATE: return date_value(&value->moment);
    case MYSQL_IS_DATETIME: return time_value(protocol, &value->moment);
    case MYSQL_IS_TIME: return rb_funcall(cDuration, id_new, 1, LL2NUM(value->integer));
    case MYSQL_IS_NULL: break;
    }
    return Qnil;
}

bool mysql_columns_copied(const struct mysql_protocol *protocol, const struct mysql_columns *columns)
{
    return columns->copies || (columns->times && protocol->local);
}

VALUE mysql_row_values(struct mysql_protocol *protocol, struct mysql_span packet, const struct mysql_columns *columns,
                       bool text)
{
    const uint8_t *p = packet.at;
    if (mysql_columns_copied(protocol, columns) && NIL_P(protocol->separate)) {
        // Another thread may close the stream meanwhile, which frees its buffer.
        protocol->row.length = 0;
        mysql_bytes_append(&protocol->row, p, packet.length);
        p = protocol->row.at;
    }
    VALUE gathered[ROW_GATHERED]; // on the stack, where the GC finds them
    VALUE array = Qnil;
    struct mysql_row row;
    bool valid = mysql_row_begin(&row, p, p + packet.length, columns->count, text);
    for (uint32_t done = 0, count; valid && done < columns->count; done += count) {
        count = columns->count - done < ROW_GATHERED ? columns->count - done : ROW_GATHERED;
        for (uint32_t i = 0; i < count; i++) {
            struct mysql_value value;
            valid = mysql_row_next(&row, &columns->fields[done + i], &value);
            if (!valid) break;
            gathered[i] = mysql_value_of(protocol, &value, columns->encodings[done + i]);
        }
        if (!valid) break;
        if (count == columns->count) {
            array = rb_ary_new_from_values((long)count, gathered);
        } else {
            if (NIL_P(array)) array = rb_ary_new_capa((long)columns->count);
            rb_ary_cat(array, gathered, (long)count);
        }
    }
    if (!valid || !mysql_row_complete(&row)) db_protocol_violated(&protocol->base, "sent a malformed row");
    return array;
}

void mysql_values_define(void)
{
    id_jd = rb_intern("jd");
    id_day = rb_intern("day");
    id_big_decimal = rb_intern("BigDecimal");
    id_new = rb_intern("new");
    id_local = rb_intern("local");
    VALUE mysql = rb_path2class("Heddle::DB::MySQL");
    mysql_cColumns = rb_define_class_under(mysql, "Columns", rb_cObject);
    rb_gc_register_mark_object(mysql_cColumns);
    rb_undef_alloc_func(mysql_cColumns);
    rb_define_method(mysql_cColumns, "names", mysql_names, 0);
    rb_define_method(mysql_cColumns, "descriptions", descriptions, 0);
    rb_define_method(mysql_cColumns, "kinds", kinds, 0);
    rb_define_method(mysql_cColumns, "size", size, 0);
}

void mysql_values_load_classes(void)
{
    cDate = db_class("Date");
    mCalendar = db_class("Heddle::DB::Calendar");
    cDuration = db_class("Heddle::DB::Duration");
}
