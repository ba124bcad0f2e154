// Reads whole replies, to a prepare and to an execution.
#include "db/mysql/protocol.h"

#include "os/main_ractor.h"
#include "references.h"

// Rows that are appended to the others at once.
enum { ROWS_GATHERED = 64 };

// The most bytes of rows that are read before other fibers run.
enum { ROWS_AT_ONCE = 64 << 10 };

VALUE mysql_cPrepared;
static VALUE error_classes;
static ID id_code, id_state, id_unasked, id_unprepared;

// ---- prepared statements

static void mysql_statement_references(void *pointer, reference_function *each)
{
    struct mysql_statement *statement = pointer;
    each(&statement->columns);
    each(&statement->parameter_types);
    each(&statement->sql);
}

REFERENCES(mysql_statement)

// Called by the GC, which may only note the close.
static void mysql_statement_release(void *pointer)
{
    if (main_ractor_releases(pointer, mysql_statement_release)) return;
    struct mysql_statement *statement = pointer;
    if (statement->open) mysql_statement_close(statement);
    mysql_statement_forget(statement);
    pending_closes_release(statement->pending_closes);
    xfree(statement);
}

static size_t mysql_statement_memsize(const void *pointer)
{
    const struct mysql_statement *statement = pointer;
    size_t size = sizeof(*statement);
    for (int i = 0; i < statement->count; i++)
        if (statement->forms[i].types) size += 2 * (size_t)statement->parameters;
    return size;
}

static const rb_data_type_t statement_type = {
    .wrap_struct_name = "Heddle::DB::MySQL::Prepared",
    .function = {.dmark = mysql_statement_mark,
                 .dfree = mysql_statement_release,
                 .dsize = mysql_statement_memsize,
                 .dcompact = mysql_statement_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

struct mysql_statement *mysql_statement_of(VALUE prepared)
{
    return rb_check_typeddata(prepared, &statement_type);
}

VALUE mysql_prepared_new(struct mysql_protocol *protocol, const struct mysql_prepared *prepared, VALUE columns,
                         VALUE types, VALUE sql)
{
    struct mysql_statement *statement;
    VALUE self = TypedData_Make_Struct(mysql_cPrepared, struct mysql_statement, &statement_type, statement);
    RB_OBJ_WRITE(self, &statement->columns, columns);
    RB_OBJ_WRITE(self, &statement->parameter_types, types);
    RB_OBJ_WRITE(self, &statement->sql, sql);
    statement->forms[0].id = prepared->id;
    statement->count = 1;
    statement->parameters = prepared->parameters;
    statement->pending_closes = pending_closes_share(protocol->base.pending_closes);
    statement->writes = mysql_sql_is_write(sql);
    statement->open = true;
    return self;
}

// ---- forms: MySQL fixes the types of a statement's parameters when it first runs, and makes of later values what it
// can ('eve' is the number 0 then). A statement has a form for each combination of types that it was run with.

static bool is_null(const uint8_t *type)
{
    return type[0] == MYSQL_NULL && !type[1];
}

// Whether the types of a form suit these values. NULL is a type of its own, since that of `ifnull(?, 5)` depends on it;
// but a write stores the same NULL for each type, and may have many columns that are NULL in some rows.
static bool suits(const struct mysql_statement *statement, const uint8_t *fixed, const uint8_t *types)
{
    for (size_t i = 0; i < 2 * (size_t)statement->parameters; i += 2) {
        if (statement->writes && is_null(types + i)) continue;
        if (fixed[i] != types[i] || fixed[i + 1] != types[i + 1]) return false;
    }
    return true;
}

// Also called by the GC.
static void drop_form(struct mysql_statement *statement, int index)
{
    pending_closes_add(statement->pending_closes, statement->forms[index].id);
    xfree(statement->forms[index].types);
    statement->count--;
    memmove(statement->forms + index, statement->forms + index + 1,
            (size_t)(statement->count - index) * sizeof(statement->forms[0]));
}

static void to_front(struct mysql_statement *statement, int index)
{
    struct mysql_form form = statement->forms[index];
    memmove(statement->forms + 1, statement->forms, (size_t)index * sizeof(form));
    statement->forms[0] = form;
}

// The first execution of a form. Forms of a write that had NULL where this one has a type are closed.
static void fix_types(struct mysql_statement *statement, const uint8_t *types, size_t count)
{
    uint8_t *fixed = ALLOC_N(uint8_t, 2 * count);
    memcpy(fixed, types, 2 * count);
    statement->forms[0].types = fixed;
    for (int i = statement->count - 1; i > 0; i--)
        if (suits(statement, fixed, statement->forms[i].types)) drop_form(statement, i);
}

bool mysql_statement_choose(struct mysql_protocol *protocol, struct mysql_statement *statement)
{
    if (!statement->count) return false;
    size_t count = statement->parameters;
    if (protocol->fixes && count) {
        uint8_t *types = mysql_built_types(protocol, count);
        if (!statement->forms[0].types) fix_types(statement, types, count);
        int i = 0;
        while (i < statement->count && !suits(statement, statement->forms[i].types, types))
            i++;
        if (i == statement->count) return false;
        if (i) to_front(statement, i);
        memcpy(types, statement->forms[0].types, 2 * count); // also where NULL is
    }
    mysql_built_for(protocol, statement->forms[0].id);
    return true;
}

void mysql_statement_add(struct mysql_protocol *protocol, VALUE self, const struct mysql_prepared *prepared,
                         VALUE columns)
{
    struct mysql_statement *statement = mysql_statement_of(self);
    if (!statement->open) pending_closes_add(protocol->base.pending_closes, prepared->id); // closed meanwhile
    if (prepared->parameters != statement->parameters) mysql_statement_close(statement);   // sql_mode has changed
    if (statement->count == MYSQL_FORMS) drop_form(statement, MYSQL_FORMS - 1);
    statement->count++;
    to_front(statement, statement->count - 1);
    statement->forms[0] = (struct mysql_form){.id = prepared->id};
    statement->parameters = prepared->parameters;
    RB_OBJ_WRITE(self, &statement->columns, columns);
}

void mysql_statement_forget(struct mysql_statement *statement)
{
    for (int i = 0; i < statement->count; i++)
        xfree(statement->forms[i].types);
    statement->count = 0;
}

void mysql_statement_close(struct mysql_statement *statement)
{
    while (statement->count)
        drop_form(statement, statement->count - 1);
}

/* call-seq: prepared.parameters -> Integer */
static VALUE parameters(VALUE self)
{
    return INT2FIX(mysql_statement_of(self)->parameters);
}

/* call-seq: prepared.parameter_types -> Columns or nil */
static VALUE parameter_types(VALUE self)
{
    return mysql_statement_of(self)->parameter_types;
}

/* call-seq: prepared.columns -> Columns or nil */
static VALUE columns(VALUE self)
{
    return mysql_statement_of(self)->columns;
}

/*
 * call-seq: prepared.id -> Integer or nil
 *
 * The server's id of the statement; nil if the server does not have it any more.
 */
static VALUE id(VALUE self)
{
    const struct mysql_statement *statement = mysql_statement_of(self);
    return statement->count ? UINT2NUM(statement->forms[0].id) : Qnil;
}

/* call-seq: prepared.open? -> true or false */
static VALUE open_p(VALUE self)
{
    return mysql_statement_of(self)->open ? Qtrue : Qfalse;
}

/* @api private prepared.forget: the server no longer has the statement. */
static VALUE mysql_prepared_forget(VALUE self)
{
    mysql_statement_of(self)->open = false;
    return Qnil;
}

// ---- parts of replies

static bool can(const struct mysql_protocol *protocol, uint64_t capability)
{
    return protocol->capabilities & capability;
}

// MySQL uses one code (1290) for all start options that forbid something.
static VALUE class_key(int code, VALUE message)
{
    if (code == 1290 && !strstr(StringValueCStr(message), "read-only") &&
        !strstr(StringValueCStr(message), "read_only"))
        return Qnil;
    return INT2FIX(code);
}

VALUE mysql_error_value(struct mysql_protocol *protocol, struct mysql_span packet)
{
    struct mysql_error error;
    if (!mysql_error(packet.at, packet.at + packet.length, &error))
        db_protocol_violated(&protocol->base, "sent a malformed error");
    VALUE state = server_text((const char *)error.state.at, error.state.length, rb_utf8_encoding());
    VALUE message = server_text((const char *)error.message.at, error.message.length, protocol->encoding);
    VALUE value = db_server_error(error_classes, class_key(error.code, message), message);
    rb_ivar_set(value, id_code, INT2FIX(error.code));
    rb_ivar_set(value, id_state, state);
    if (protocol->unasked) rb_ivar_set(value, id_unasked, Qtrue);
    return value;
}

int mysql_error_code(VALUE error)
{
    return NUM2INT(rb_ivar_get(error, id_code));
}

bool mysql_wants_room(VALUE answer)
{
    enum { STATEMENTS_FULL = 1461 }; // ER_MAX_PREPARED_STMT_COUNT_REACHED
    return !db_is_result(answer) && mysql_error_code(answer) == STATEMENTS_FULL &&
           RTEST(rb_attr_get(answer, id_unprepared));
}

// A shutdown; packets that the server cannot read (longer than its max_allowed_packet: 1153) or write; a session that
// was killed, or was idle for too long.
bool mysql_error_is_final(VALUE error)
{
    if (RTEST(rb_attr_get(error, id_unasked))) return true;
    int code = mysql_error_code(error);
    return code == 1053 || (code >= 1077 && code <= 1079) || ((code >= 1152 && code <= 1161)) || code == 1184 ||
           code == 1927 || code == 3169 || code == 4031;
}

static void note_status(struct mysql_protocol *protocol, const struct mysql_ok *ok)
{
    protocol->status = ok->status;
    if (ok->session_changed) protocol->changed = true;
}

// A packet of those that describe columns.
static struct mysql_span definition(struct mysql_protocol *protocol)
{
    struct mysql_span packet = mysql_packet(protocol);
    protocol->definitions--;
    return packet;
}

// Reads the old form of the packet that ends columns.
static void read_end(struct mysql_protocol *protocol, struct mysql_ok *ok)
{
    struct mysql_span packet = definition(protocol);
    if (packet.length >= 9 || !mysql_end(packet.at, packet.at + packet.length, ok))
        db_protocol_violated(&protocol->base, "sent no end of the columns");
    note_status(protocol, ok);
}

static void read_columns(struct mysql_protocol *protocol, VALUE into, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        mysql_columns_define(protocol, into, i, definition(protocol));
    struct mysql_ok end;
    if (!can(protocol, MYSQL_CAN_DEPRECATE_EOF)) read_end(protocol, &end);
}

static void parse_ok(struct mysql_protocol *protocol, struct mysql_span packet, struct mysql_ok *ok)
{
    if (!mysql_ok(packet.at, packet.at + packet.length, ok))
        db_protocol_violated(&protocol->base, "sent a malformed OK");
    note_status(protocol, ok);
}

static void parse_rows_end(struct mysql_protocol *protocol, struct mysql_span packet, struct mysql_ok *ok)
{
    bool valid = can(protocol, MYSQL_CAN_DEPRECATE_EOF) ? mysql_ok(packet.at, packet.at + packet.length, ok)
                                                        : mysql_end(packet.at, packet.at + packet.length, ok);
    if (!valid) db_protocol_violated(&protocol->base, "sent a malformed end of rows");
    note_status(protocol, ok);
}

// ---- what the parts of a reply begin with

// Returns false for an error.
static bool begin_prepared(struct mysql_protocol *protocol, struct mysql_span packet, struct mysql_prepared *prepared)
{
    protocol->part = MYSQL_NOTHING;
    if (mysql_reply(packet.at, packet.at + packet.length) == MYSQL_REPLY_ERROR) return false;
    if (!mysql_prepared(packet.at, packet.at + packet.length, prepared))
        db_protocol_violated(&protocol->base, "sent a malformed reply to a prepare");
    uint32_t ends = can(protocol, MYSQL_CAN_DEPRECATE_EOF) ? 0 : (prepared->parameters > 0) + (prepared->columns > 0);
    protocol->definitions = (uint32_t)prepared->parameters + prepared->columns + ends;
    return true;
}

static void end_result(struct mysql_protocol *protocol)
{
    protocol->part = protocol->status & MYSQL_MORE_RESULTS ? MYSQL_RESULT : MYSQL_NOTHING;
}

// `columns` and `follow`: of a result with rows, the number of columns and whether they are described.
static enum mysql_reply begin_result(struct mysql_protocol *protocol, struct mysql_span packet, struct mysql_ok *ok,
                                     uint32_t *columns, bool *follow)
{
    enum mysql_reply kind = mysql_reply(packet.at, packet.at + packet.length);
    switch (kind) {
    case MYSQL_REPLY_OK:
        parse_ok(protocol, packet, ok);
        end_result(protocol);
        break;
    case MYSQL_REPLY_ERROR: protocol->part = MYSQL_NOTHING; break;
    case MYSQL_REPLY_OTHER:
        if (!mysql_result_head(packet.at, packet.at + packet.length, can(protocol, MYSQL_CAN_CACHE_METADATA), columns,
                               follow))
            db_protocol_violated(&protocol->base, "sent a malformed result header");
        protocol->definitions = (*follow ? *columns : 0) + !can(protocol, MYSQL_CAN_DEPRECATE_EOF);
        protocol->part = MYSQL_ROWS;
        break;
    case MYSQL_REPLY_INFILE:
        db_protocol_violated(&protocol->base, "asked for a local file (LOCAL INFILE), which is never sent");
    default: db_protocol_violated(&protocol->base, "sent a reply that is not a result");
    }
    return kind;
}

// Where a row may come.
static enum mysql_reply begin_row(struct mysql_protocol *protocol, struct mysql_span packet, bool text,
                                  struct mysql_ok *ok)
{
    enum mysql_reply kind =
        mysql_row_reply(packet.at, packet.at + packet.length, text, can(protocol, MYSQL_CAN_DEPRECATE_EOF));
    switch (kind) {
    case MYSQL_REPLY_OTHER: break;
    case MYSQL_REPLY_END:
        parse_rows_end(protocol, packet, ok);
        end_result(protocol);
        break;
    case MYSQL_REPLY_ERROR: protocol->part = MYSQL_NOTHING; break;
    default: db_protocol_violated(&protocol->base, "sent a malformed row");
    }
    return kind;
}

void mysql_drop_reply(struct mysql_protocol *protocol)
{
    struct mysql_prepared prepared;
    struct mysql_ok ok;
    uint32_t columns;
    bool follow;
    if (protocol->part == MYSQL_WHOLE) mysql_reply_begin(protocol);
    while (protocol->definitions || protocol->part != MYSQL_NOTHING) {
        if (protocol->definitions) {
            definition(protocol);
            continue;
        }
        struct mysql_span packet = mysql_packet(protocol);
        switch (protocol->part) {
        case MYSQL_PREPARED: begin_prepared(protocol, packet, &prepared); break;
        case MYSQL_RESULT: begin_result(protocol, packet, &ok, &columns, &follow); break;
        default: begin_row(protocol, packet, false, &ok);
        }
    }
    mysql_reply_end(protocol);
}

// ---- rows

// Reads the rows that have arrived completely. Reads them in place, and looks up the stream once: nothing here lets
// another thread run, which could close the stream.
static void read_buffered_rows(struct mysql_protocol *protocol, const struct mysql_columns *columns, VALUE rows,
                               bool text)
{
    struct stream *stream = stream_of(protocol->base.stream);
    db_protocol_consume(&protocol->base, stream);
    VALUE gathered[ROWS_GATHERED]; // on the stack, where the GC finds them
    long count = 0;
    size_t left;
    const uint8_t *begin = stream_buffered(stream, &left), *p = begin;
    while (left >= MYSQL_HEADER && p - begin <= ROWS_AT_ONCE) {
        size_t length = mysql_packet_length(p);
        const uint8_t *payload = p + MYSQL_HEADER;
        if (length == MYSQL_LARGEST_PACKET || left - MYSQL_HEADER < length ||
            mysql_packet_sequence(p) != protocol->sequence ||
            mysql_row_reply(payload, payload + length, text, can(protocol, MYSQL_CAN_DEPRECATE_EOF)) !=
                MYSQL_REPLY_OTHER)
            break; // mysql_packet handles every other packet
        protocol->sequence++;
        gathered[count++] = mysql_row_values(protocol, (struct mysql_span){payload, length}, columns, text);
        if (count == ROWS_GATHERED) {
            rb_ary_cat(rows, gathered, count);
            count = 0;
        }
        p += MYSQL_HEADER + length;
        left -= MYSQL_HEADER + length;
    }
    if (count) rb_ary_cat(rows, gathered, count);
    if (p > begin) stream_consume(stream, (size_t)(p - begin));
}

// Reads all rows up to the end into `rows`. Returns 0, or the error that came instead of the end.
static VALUE read_rows(struct mysql_protocol *protocol, VALUE description, VALUE rows, bool text, struct mysql_ok *ok)
{
    const struct mysql_columns *columns = mysql_columns_of(description);
    VALUE error = 0;
    for (bool more = true; more;) {
        if (!mysql_columns_copied(protocol, columns)) read_buffered_rows(protocol, columns, rows, text);
        struct mysql_span packet = mysql_packet(protocol);
        enum mysql_reply kind = begin_row(protocol, packet, text, ok);
        more = kind == MYSQL_REPLY_OTHER;
        if (more) rb_ary_push(rows, mysql_row_values(protocol, packet, columns, text));
        if (kind == MYSQL_REPLY_ERROR) error = mysql_error_value(protocol, packet);
    }
    RB_GC_GUARD(description);
    return error;
}

// ---- prepare

VALUE mysql_read_prepared(struct mysql_protocol *protocol, struct mysql_prepared *prepared, VALUE *description,
                          VALUE *types)
{
    mysql_reply_begin(protocol);
    *description = Qnil;
    if (types) *types = Qnil;
    struct mysql_span packet = mysql_packet(protocol);
    if (!begin_prepared(protocol, packet, prepared)) {
        VALUE error = mysql_error_value(protocol, packet);
        rb_ivar_set(error, id_unprepared, Qtrue);
        mysql_reply_end(protocol);
        return error;
    }
    if (!protocol->base.shared) { // else its close was sent with it
        protocol->last = prepared->id;
        protocol->last_open = true;
    }
    struct mysql_ok end;
    if (types && prepared->parameters) *types = mysql_columns_new(prepared->parameters);
    for (uint32_t i = 0; i < prepared->parameters; i++) {
        packet = definition(protocol);
        if (types) mysql_columns_define(protocol, *types, i, packet);
    }
    if (prepared->parameters && !can(protocol, MYSQL_CAN_DEPRECATE_EOF)) read_end(protocol, &end);
    if (prepared->columns) {
        *description = mysql_columns_new(prepared->columns);
        read_columns(protocol, *description, prepared->columns);
    }
    mysql_reply_end(protocol);
    return 0;
}

// ---- results

static VALUE result_new(VALUE description, VALUE rows, const struct mysql_ok *ok)
{
    VALUE result = db_result_new(description, rows, ULL2NUM(ok->affected));
    if (ok->last_id) db_result_set_last_id(result, ULL2NUM(ok->last_id));
    if (ok->warnings) db_result_set_warnings(result, INT2FIX(ok->warnings));
    return result;
}

// Reads columns, and rows or a cursor.
static VALUE read_table(struct mysql_protocol *protocol, uint32_t count, bool follow, VALUE *known, VALUE owner,
                        bool text, bool writes)
{
    VALUE description = known ? *known : Qnil;
    struct mysql_ok ok = {0};
    if (follow) {
        description = mysql_columns_anew(description, count);
        for (uint32_t i = 0; i < count; i++)
            mysql_columns_define(protocol, description, i, definition(protocol));
        // The server may leave out these from now on, and no longer those of the prepare: a ? has the type of the bound
        // value.
        if (known) *known = description;
        if (!NIL_P(owner)) RB_OBJ_WRITTEN(owner, Qundef, description);
    } else if (NIL_P(description) || mysql_columns_of(description)->count != count) {
        db_protocol_violated(&protocol->base, "left out column definitions that it never sent");
    }
    VALUE rows = rb_ary_new();
    if (!can(protocol, MYSQL_CAN_DEPRECATE_EOF)) {
        read_end(protocol, &ok);
        if (ok.status & MYSQL_CURSOR_EXISTS) return result_new(description, rows, &ok);
    }
    VALUE error = read_rows(protocol, description, rows, text, &ok);
    if (error) return error;
    ok.affected = writes ? (uint64_t)RARRAY_LEN(rows) : 0;
    ok.last_id = 0;
    return result_new(description, rows, &ok);
}

static VALUE read_one(struct mysql_protocol *protocol, VALUE *known, VALUE owner, bool text, bool writes)
{
    struct mysql_span packet = mysql_packet(protocol);
    struct mysql_ok ok;
    uint32_t columns;
    bool follow;
    switch (begin_result(protocol, packet, &ok, &columns, &follow)) {
    case MYSQL_REPLY_OK: return result_new(Qnil, Qnil, &ok);
    case MYSQL_REPLY_ERROR: return mysql_error_value(protocol, packet);
    default: return read_table(protocol, columns, follow, known, owner, text, writes);
    }
}

VALUE mysql_read_result(struct mysql_protocol *protocol, VALUE *known, VALUE owner, bool text, bool writes)
{
    mysql_reply_begin(protocol);
    VALUE first = 0, last = 0;
    do {
        VALUE result = read_one(protocol, last ? NULL : known, last ? Qnil : owner, text, writes);
        if (!db_is_result(result)) { // results before an error are of no use
            mysql_reply_end(protocol);
            return result;
        }
        if (last) db_result_set_following(last, result);
        if (!first) first = result;
        last = result;
    } while (protocol->status & MYSQL_MORE_RESULTS);
    mysql_reply_end(protocol);
    RB_GC_GUARD(first);
    return first;
}

VALUE mysql_read_new(struct mysql_protocol *protocol, VALUE sql, bool keep)
{
    struct mysql_prepared prepared;
    VALUE columns;
    VALUE error = mysql_read_prepared(protocol, &prepared, &columns, NULL);
    if (error) {
        // The execution is answered with a meaningless error, too, unless the server ends the connection.
        if (!mysql_error_is_final(error)) mysql_drop_reply(protocol);
        protocol->refused = sql;
        return error;
    }
    VALUE statement = keep ? mysql_prepared_new(protocol, &prepared, columns, Qnil, sql) : Qnil;
    VALUE prepared_columns = columns;
    if (!NIL_P(prepared_columns)) mysql_columns_of(prepared_columns)->fresh = true;
    VALUE result = mysql_read_result(protocol, keep ? &mysql_statement_of(statement)->columns : &columns, statement,
                                     false, mysql_sql_is_write(sql));
    if (!NIL_P(prepared_columns)) mysql_columns_of(prepared_columns)->fresh = false;
    RB_GC_GUARD(statement);
    // Of a shared connection a reply too many would shift those of all others.
    if (protocol->base.shared && prepared.columns && db_is_result(result) && !db_result_has_rows(result))
        db_protocol_violated(&protocol->base, "sent no rows for a statement that has columns");
    if (keep) return rb_assoc_new(statement, result);
    if (!protocol->base.shared) mysql_queue_close(protocol, prepared.id);
    return result;
}

VALUE mysql_read_fetched(struct mysql_protocol *protocol, VALUE description)
{
    mysql_reply_begin(protocol);
    VALUE rows = rb_ary_new();
    struct mysql_ok ok;
    VALUE error = read_rows(protocol, description, rows, false, &ok);
    mysql_reply_end(protocol);
    return error ? error : rows;
}

void mysql_results_define(void)
{
    id_code = rb_intern("@code");
    id_state = rb_intern("@sql_state");
    id_unasked = rb_intern("@unasked");
    id_unprepared = rb_intern("@unprepared");
    mysql_cPrepared = rb_define_class_under(rb_path2class("Heddle::DB::MySQL"), "Prepared", rb_cObject);
    rb_gc_register_mark_object(mysql_cPrepared);
    rb_undef_alloc_func(mysql_cPrepared);
    rb_define_method(mysql_cPrepared, "parameters", parameters, 0);
    rb_define_method(mysql_cPrepared, "parameter_types", parameter_types, 0);
    rb_define_method(mysql_cPrepared, "columns", columns, 0);
    rb_define_method(mysql_cPrepared, "id", id, 0);
    rb_define_method(mysql_cPrepared, "open?", open_p, 0);
    rb_define_method(mysql_cPrepared, "forget", mysql_prepared_forget, 0);
}

void mysql_results_load_classes(void)
{
    db_result_load_classes();
    error_classes = rb_const_get(rb_path2class("Heddle::DB::MySQL"), rb_intern("ERROR_CLASSES"));
    rb_gc_register_mark_object(error_classes);
}
