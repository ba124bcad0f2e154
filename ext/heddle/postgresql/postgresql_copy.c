// COPY between the server and the client, by a simple Query (section "COPY Operations" of the protocol). The block of
// the caller runs in the middle: each piece of data is an exchange of its own, and the link owes its reply until the
// server's ReadyForQuery.
#include "postgresql/postgresql_link.h"

#include "wire/wire_postgresql_copy.h"
#include "wire/wire_postgresql_sql.h"

#include <string.h>
#include <strings.h>

enum {
    SEND_AT = 64 << 10,     // bytes of rows that are gathered for one CopyData
    BATCH_ROWS = 256,       // most rows that are handed out at once
    BATCH_BYTES = 256 << 10 // … and about as many bytes
};

enum form { TEXT, CSV, BINARY };

struct copy {
    VALUE link;
    VALUE null;              // the text of NULL; the forms point into it
    VALUE error;             // the server's, or nil
    struct pg_buffer buffer; // rows to be sent, in an open CopyData; or the beginning of a row of the server
    struct pg_copy_text text;
    struct pg_copy_csv csv;
    enum form form;
    uint32_t columns;
    uint64_t rows; // as the server counts them
    bool plain;    // numbers need neither escapes nor quotes
    bool raw;      // the server's bytes are wanted, not their fields
    bool foreign;  // the data is in another encoding than UTF-8
    bool header;   // of the binary form: was read or written
    bool done;     // the server has sent all data
    bool ended;
};

static VALUE cCopyIn, cCopyOut, mParameters;
static ID id_convert;

static void mark(void *pointer)
{
    const struct copy *copy = pointer;
    rb_gc_mark(copy->link);
    rb_gc_mark(copy->null);
    rb_gc_mark(copy->error);
}

static void release(void *pointer)
{
    struct copy *copy = pointer;
    xfree(copy->buffer.at);
    xfree(copy);
}

static size_t memsize(const void *pointer)
{
    const struct copy *copy = pointer;
    return sizeof(*copy) + copy->buffer.capacity;
}

static const rb_data_type_t copy_type = {
    .wrap_struct_name = "Heddle::DB::PostgreSQL::Copy",
    .function = {.dmark = mark, .dfree = release, .dsize = memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static struct copy *copy_of(VALUE self)
{
    return rb_check_typeddata(self, &copy_type);
}

// ---- statements

static bool is_word(const struct pg_sql_scan *scan, const char *word)
{
    return scan->token == PG_SQL_WORD && scan->text.length == strlen(word) &&
           strncasecmp((const char *)scan->text.at, word, scan->text.length) == 0;
}

/* @api private Link.copy_options(sql) -> Array of String: the tokens behind FROM STDIN or TO STDOUT */
static VALUE copy_options(VALUE klass, VALUE sql)
{
    (void)klass;
    StringValue(sql);
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    VALUE options = rb_ary_new();
    struct pg_sql_scan scan;
    bool behind = false;
    size_t depth = 0;
    bool direction = false; // the word before is FROM or TO
    for (pg_sql_begin(&scan, p, p + RSTRING_LEN(sql), false); pg_sql_next(&scan) != PG_SQL_END;) {
        if (behind) rb_ary_push(options, rb_utf8_str_new((const char *)scan.text.at, (long)scan.text.length));
        if (scan.token == PG_SQL_OPEN) depth++;
        if (scan.token == PG_SQL_CLOSE && depth > 0) depth--;
        if (depth == 0 && direction && (is_word(&scan, "stdin") || is_word(&scan, "stdout"))) behind = true;
        direction = is_word(&scan, "from") || is_word(&scan, "to");
    }
    RB_GC_GUARD(sql);
    return options;
}

VALUE postgresql_copy_refused(void)
{
    VALUE said = rb_utf8_str_new_cstr("a COPY from STDIN or to STDOUT is run by copy_in or copy_out: "
                                      "db.copy_in(sql) { |copy| copy << row }, db.copy_out(sql) { |row| … }");
    VALUE error = rb_exc_new_str(rb_path2class("Heddle::DB::ServerError"), said);
    rb_ivar_set(error, rb_intern("@sql_state"), rb_utf8_str_new_cstr("0A000")); // feature_not_supported
    return error;
}

static void put_refusal(struct pg_buffer *buffer, const char *reason)
{
    postgresql_check(pg_put_copy_fail(buffer, (struct pg_span){(const uint8_t *)reason, strlen(reason)}));
}

// In a COPY the server passes over the Sync that came with a statement of the extended protocol. Behind requests that
// travel together nobody knows whose Sync that was.
void postgresql_refuse_copy(struct postgresql_link *link)
{
    if (link->base.owed > 1) db_link_violated(&link->base, "began a COPY in the middle of a pipeline");
    put_refusal(&link->request, "no COPY was expected");
    if (!link->text) postgresql_check(pg_put_sync(&link->request));
    struct stream *stream = stream_of(link->base.stream);
    stream_append(stream, link->request.at, link->request.length);
    link->request.length = 0;
}

// ---- replies

static void ended(struct postgresql_link *link)
{
    link->in_copy = link->copy_out = false;
    db_link_replied(&link->base, stream_of(link->base.stream));
}

// What is left of the reply: its count of rows, or the server's error.
struct end {
    VALUE error;
    uint64_t rows;
    bool counted;
};

// False at the end.
static bool read_end(struct postgresql_link *link, struct pg_message message, struct end *end)
{
    struct pg_command command;
    switch (message.type) {
    case PG_READY_FOR_QUERY:
        if (!pg_ready_for_query(message.p, message.end, &link->transaction))
            db_link_violated(&link->base, "sent a malformed state of the transaction");
        ended(link);
        return false;
    case PG_COMMAND_COMPLETE:
        if (!pg_command(message.p, message.end, &command))
            db_link_violated(&link->base, "sent a malformed end of a statement");
        end->counted = true;
        end->rows = command.counted ? command.rows : 0;
        return true;
    case PG_ERROR_RESPONSE:
        if (NIL_P(end->error)) end->error = postgresql_error_value(message);
        return true;
    default:
        db_link_violated(&link->base, "sent a message that has no place in a COPY");
    }
}

static void read_to_end(struct postgresql_link *link, struct end *end)
{
    while (read_end(link, postgresql_message(link), end))
        continue;
    if (NIL_P(end->error) && !end->counted) db_link_violated(&link->base, "ended a COPY without its end");
}

static VALUE start_body(struct db_exchange *exchange)
{
    struct postgresql_link *link = exchange->link;
    VALUE sql = exchange->arguments[0];
    bool into = RTEST(exchange->arguments[1]);
    exchange->unsent = true;
    postgresql_check(
        pg_put_query(&link->request, (struct pg_span){(const uint8_t *)RSTRING_PTR(sql), (size_t)RSTRING_LEN(sql)}));
    exchange->unsent = false;
    postgresql_send(link, 1);
    link->text = true;
    struct pg_message message = postgresql_message(link);
    while (message.type == PG_CLOSE_COMPLETE) // of statements whose Close went ahead
        message = postgresql_message(link);
    if (message.type != (into ? PG_COPY_IN_RESPONSE : PG_COPY_OUT_RESPONSE)) {
        struct end end = {.error = Qnil};
        if (message.type != PG_ERROR_RESPONSE) db_link_violated(&link->base, "did not begin the COPY");
        read_end(link, message, &end);
        read_to_end(link, &end);
        return end.error;
    }
    struct pg_copy copy;
    if (!pg_copy_response(message.p, message.end, &copy))
        db_link_violated(&link->base, "sent a malformed beginning of a COPY");
    link->in_copy = into;
    link->copy_out = !into;
    return rb_assoc_new(UINT2NUM(copy.columns), copy.format == PG_BINARY ? Qtrue : Qfalse);
}

/* @api private link.start_copy(sql, into) -> [columns, binary] or an error */
static VALUE start_copy(VALUE self, VALUE sql, VALUE into)
{
    StringValue(sql);
    return postgresql_exchange_with(self, start_body, rb_str_new_frozen(sql), into);
}

static uint8_t byte_of(VALUE hash, const char *name, uint8_t usual)
{
    VALUE string = rb_hash_lookup(hash, ID2SYM(rb_intern(name)));
    if (NIL_P(string)) return usual;
    if (RSTRING_LEN(StringValue(string)) != 1) rb_raise(rb_eArgError, "the %s of a COPY is one byte", name);
    return (uint8_t)*RSTRING_PTR(string);
}

/* @api private CopyIn.of(link, columns, options), CopyOut.of: a COPY that the server has begun. Options: format (:text,
 * :csv, :binary), delimiter, null, quote, escape, encoding (one that is not UTF-8), raw. */
static VALUE copy_new(VALUE klass, VALUE link, VALUE columns, VALUE options)
{
    struct copy *copy;
    VALUE self = TypedData_Make_Struct(klass, struct copy, &copy_type, copy);
    postgresql_link_of(link);
    copy->link = link;
    copy->error = Qnil;
    copy->buffer.grow = postgresql_grow;
    copy->columns = NUM2UINT(columns);
    VALUE format = rb_hash_lookup(options, ID2SYM(rb_intern("format")));
    copy->form = format == ID2SYM(rb_intern("binary")) ? BINARY : format == ID2SYM(rb_intern("csv")) ? CSV : TEXT;
    copy->raw = RTEST(rb_hash_lookup(options, ID2SYM(rb_intern("raw"))));
    copy->foreign = RTEST(rb_hash_lookup(options, ID2SYM(rb_intern("encoding"))));
    copy->text = pg_copy_text_default;
    copy->csv = pg_copy_csv_default;
    copy->text.delimiter = byte_of(options, "delimiter", copy->text.delimiter);
    copy->csv.delimiter = byte_of(options, "delimiter", copy->csv.delimiter);
    copy->csv.quote = byte_of(options, "quote", copy->csv.quote);
    copy->csv.escape = byte_of(options, "escape", copy->csv.quote);
    copy->plain = copy->form == TEXT ? copy->text.delimiter == '\t' : copy->csv.delimiter == ',';
    VALUE null = rb_hash_lookup(options, ID2SYM(rb_intern("null")));
    copy->null = NIL_P(null) ? Qnil : rb_str_new_frozen(StringValue(null));
    if (!NIL_P(copy->null)) {
        struct pg_span span = {(const uint8_t *)RSTRING_PTR(copy->null), (size_t)RSTRING_LEN(copy->null)};
        copy->text.null = copy->csv.null = span;
        copy->plain = false;
    }
    return self;
}

// ---- in

static VALUE hexadecimal(VALUE bytes)
{
    static const char digits[] = "0123456789abcdef";
    long length = RSTRING_LEN(bytes);
    VALUE text = rb_str_new(NULL, 2 + 2 * length);
    char *at = RSTRING_PTR(text);
    const uint8_t *from = (const uint8_t *)RSTRING_PTR(bytes);
    *at++ = '\\';
    *at++ = 'x';
    for (long i = 0; i < length; i++) {
        *at++ = digits[from[i] >> 4];
        *at++ = digits[from[i] & 15];
    }
    RB_GC_GUARD(bytes);
    return text;
}

// Text, of a value that put_value does not know. Runs Ruby code.
static VALUE text_of(const struct copy *copy, VALUE value, long number, bool converted)
{
    if (NIL_P(value)) return value;
    if (value == Qtrue || value == Qfalse) return rb_utf8_str_new_cstr(value == Qtrue ? "t" : "f");
    if (SYMBOL_P(value)) value = rb_sym2str(value);
    if (RB_TYPE_P(value, T_STRING)) {
        rb_encoding *encoding = rb_enc_get(value);
        if (encoding == rb_ascii8bit_encoding()) return hexadecimal(value);
        if (encoding == rb_utf8_encoding()) return rb_str_new_frozen(value);
        return rb_str_encode(value, rb_enc_from_encoding(rb_utf8_encoding()), 0, Qnil);
    }
    if (RB_FLOAT_TYPE_P(value) || RB_INTEGER_TYPE_P(value)) return rb_obj_as_string(value);
    if (NIL_P(mParameters)) {
        mParameters = rb_path2class("Heddle::DB::PostgreSQL::Parameters");
        rb_gc_register_mark_object(mParameters);
    }
    VALUE local = postgresql_link_of(copy->link)->local ? Qtrue : Qfalse;
    VALUE pair = rb_funcall(mParameters, id_convert, 3, value, local, LONG2NUM(number));
    Check_Type(pair, T_ARRAY);
    if (RARRAY_LEN(pair) == 1 && !converted) return text_of(copy, rb_ary_entry(pair, 0), number, true);
    if (RARRAY_LEN(pair) != 2)
        rb_raise(rb_eTypeError, "argument %ld is a %" PRIsVALUE ", which has no form as text: a COPY cannot take it",
                 number, rb_obj_class(value));
    VALUE text = rb_ary_entry(pair, 1);
    return rb_str_new_frozen(StringValue(text));
}

static enum pg_written put_span(struct copy *copy, struct pg_span span, bool only)
{
    switch (copy->form) {
    case TEXT:
        return pg_put_copy_text(&copy->buffer, &copy->text, span);
    case CSV:
        return pg_put_copy_csv(&copy->buffer, &copy->csv, span, only);
    default:
        return pg_put_value(&copy->buffer, span);
    }
}

static enum pg_written put_integer(struct copy *copy, long number, bool only)
{
    uint8_t bytes[24], *at = bytes + sizeof(bytes);
    unsigned long left = number < 0 ? 0UL - (unsigned long)number : (unsigned long)number;
    do {
        *--at = (uint8_t)('0' + left % 10);
        left /= 10;
    } while (left);
    if (number < 0) *--at = '-';
    size_t length = (size_t)(bytes + sizeof(bytes) - at);
    return copy->plain ? pg_put_bytes(&copy->buffer, at, length) : put_span(copy, (struct pg_span){at, length}, only);
}

static bool is_text(VALUE string)
{
    int encoding = rb_enc_get_index(string);
    return encoding == rb_utf8_encindex() || encoding == rb_usascii_encindex();
}

// False for a value that text_of must turn into text first.
static bool put_value(struct copy *copy, VALUE value, bool only, bool made, enum pg_written *written)
{
    if (NIL_P(value)) {
        *written = put_span(copy, (struct pg_span){NULL, 0}, only);
    } else if (RB_TYPE_P(value, T_STRING) && (made || copy->form == BINARY || is_text(value))) {
        struct pg_span span = {(const uint8_t *)RSTRING_PTR(value), (size_t)RSTRING_LEN(value)};
        *written = put_span(copy, span, only);
    } else if (copy->form == BINARY) {
        return false;
    } else if (FIXNUM_P(value)) {
        *written = put_integer(copy, FIX2LONG(value), only);
    } else if (value == Qtrue || value == Qfalse) {
        const uint8_t *text = (const uint8_t *)(value == Qtrue ? "t" : "f");
        *written = put_span(copy, (struct pg_span){text, 1}, only);
    } else {
        return false;
    }
    return true;
}

static enum pg_written put_between(struct copy *copy, bool first)
{
    if (first || copy->form == BINARY) return PG_WRITTEN;
    return pg_put_8(&copy->buffer, copy->form == TEXT ? copy->text.delimiter : copy->csv.delimiter);
}

static void check_written(struct copy *copy, enum pg_written written, size_t begin)
{
    if (written == PG_WRITTEN) return;
    copy->buffer.length = begin;
    if (written == PG_OUT_OF_RANGE)
        rb_raise(rb_eArgError, "an empty text would be read as NULL: give the COPY another NULL");
    postgresql_check(written);
}

// Runs no Ruby code: another thread's row must not come into this one. Returns false, and writes nothing, if a value is
// not text yet. `made`: all Strings are text.
static bool put_row(struct copy *copy, VALUE row, bool made)
{
    size_t begin = copy->buffer.length;
    long count = RARRAY_LEN(row);
    enum pg_written written = PG_WRITTEN;
    if (copy->form == BINARY) written = pg_put_copy_binary_tuple(&copy->buffer, (size_t)count);
    for (long i = 0; i < count && !written; i++) {
        written = put_between(copy, i == 0);
        if (written) break;
        if (!put_value(copy, RARRAY_AREF(row, i), count == 1, made, &written)) {
            copy->buffer.length = begin;
            return false;
        }
    }
    if (!written && copy->form != BINARY) written = pg_put_8(&copy->buffer, '\n');
    check_written(copy, written, begin);
    return true;
}

static VALUE text_row(struct copy *copy, VALUE row)
{
    VALUE made = rb_ary_new_capa(RARRAY_LEN(row));
    for (long i = 0; i < RARRAY_LEN(row); i++) {
        VALUE value = RARRAY_AREF(row, i);
        bool known = NIL_P(value) || FIXNUM_P(value) || value == Qtrue || value == Qfalse;
        if (copy->form == BINARY && !NIL_P(value) && !RB_TYPE_P(value, T_STRING))
            rb_raise(rb_eTypeError,
                     "value %ld of the row is a %" PRIsVALUE
                     ": a COPY in the binary form takes Strings of the server's own bytes; use the text form",
                     i + 1, rb_obj_class(value));
        rb_ary_push(made, known || copy->form == BINARY ? value : text_of(copy, value, i + 1, false));
    }
    return made;
}

static void begin_data(struct copy *copy)
{
    size_t message;
    copy->buffer.length = 0;
    postgresql_check(pg_copy_data_begin(&copy->buffer, &message));
    if (copy->form == BINARY && !copy->header && !copy->raw) {
        postgresql_check(pg_put_copy_binary_header(&copy->buffer));
        copy->header = true;
    }
}

static void append_data(struct copy *copy)
{
    if (copy->buffer.length <= PG_HEADER) return;
    postgresql_check(pg_copy_data_end(&copy->buffer, 0));
    stream_append(stream_of(postgresql_link_of(copy->link)->base.stream), copy->buffer.at, copy->buffer.length);
    copy->buffer.length = 0;
}

// The server may have refused the data by now: all that it is sent then is in vain.
static VALUE flush_body(struct db_exchange *exchange)
{
    struct postgresql_link *link = exchange->link;
    struct copy *copy = copy_of(exchange->arguments[0]);
    struct stream *stream = stream_of(link->base.stream);
    append_data(copy);
    stream_flush(stream);
    enum postgresql_arrived arrived = postgresql_keep_arrived(link);
    if (arrived == POSTGRESQL_GONE) stream_need(stream, 1);
    if (arrived != POSTGRESQL_MESSAGE) return Qnil;
    struct end end = {.error = Qnil};
    read_to_end(link, &end);
    if (NIL_P(end.error)) db_link_violated(&link->base, "ended a COPY that was going on");
    RB_OBJ_WRITE(exchange->arguments[0], &copy->error, end.error);
    copy->ended = true;
    return Qnil;
}

static void check_open(struct copy *copy)
{
    if (!NIL_P(copy->error)) rb_exc_raise(copy->error);
    if (copy->ended) rb_raise(rb_path2class("Heddle::DB::StatementClosed"), "this COPY has ended: its block was left");
}

static void flush(VALUE self, struct copy *copy)
{
    struct db_exchange exchange = {.self = copy->link, .body = flush_body, .arguments = {self}};
    postgresql_exchange(&exchange);
    if (!NIL_P(copy->error)) rb_exc_raise(copy->error);
}

/*
 * call-seq: copy << row -> self
 *
 * Adds a row: an Array with a value for each column of the COPY. In the text and csv forms, values are those that
 * queries take as arguments; nil is NULL. In the binary form each value is nil, or a String of the bytes that the
 * server stores. Rows are gathered, and sent in pieces of 64 KiB.
 *
 * Raises TypeError or ArgumentError for a row that cannot be sent, and has sent nothing of it then. Raises the server's
 * Heddle::DB::ServerError if the server has refused an earlier row.
 */
static VALUE add_row(VALUE self, VALUE row)
{
    struct copy *copy = copy_of(self);
    check_open(copy);
    Check_Type(row, T_ARRAY);
    if (copy->foreign)
        rb_raise(rb_eArgError, "the rows of this COPY are in an encoding of its own: leave the statement's encoding "
                               "out, or give bytes in that encoding (write)");
    if (RARRAY_LEN(row) != (long)copy->columns)
        rb_raise(rb_eArgError, "the row has %ld values, and the COPY %u columns", RARRAY_LEN(row), copy->columns);
    if (copy->buffer.length == 0) begin_data(copy);
    if (!put_row(copy, row, false)) {
        VALUE made = text_row(copy, row);
        check_open(copy); // Ruby code ran
        if (copy->buffer.length == 0) begin_data(copy);
        put_row(copy, made, true);
        RB_GC_GUARD(made);
    }
    if (copy->buffer.length >= SEND_AT) flush(self, copy);
    RB_GC_GUARD(row);
    return self;
}

/*
 * call-seq: copy.write(bytes) -> Integer
 *
 * Adds bytes that are in the form of the COPY already, such as a piece of a csv file. They may end anywhere in a row.
 * In the binary form they begin with that form's header, unless a row was added before. Returns their number.
 */
static VALUE write_copied(VALUE self, VALUE bytes)
{
    struct copy *copy = copy_of(self);
    check_open(copy);
    bytes = rb_str_new_frozen(StringValue(bytes));
    size_t length = (size_t)RSTRING_LEN(bytes), done = 0;
    if (!copy->header) copy->raw = true; // the header is the caller's
    while (done < length) {
        if (copy->buffer.length == 0) begin_data(copy);
        size_t piece = length - done < SEND_AT ? length - done : SEND_AT;
        postgresql_check(pg_put_bytes(&copy->buffer, RSTRING_PTR(bytes) + done, piece));
        done += piece;
        if (copy->buffer.length >= SEND_AT) {
            flush(self, copy);
            check_open(copy);
        }
    }
    RB_GC_GUARD(bytes);
    return SIZET2NUM(length);
}

static VALUE finish_body(struct db_exchange *exchange)
{
    struct postgresql_link *link = exchange->link;
    struct copy *copy = copy_of(exchange->arguments[0]);
    VALUE reason = exchange->arguments[1];
    copy->ended = true;
    if (NIL_P(reason)) {
        if (copy->form == BINARY && !copy->raw) {
            if (copy->buffer.length == 0) begin_data(copy); // with the header, unless that has gone already
            postgresql_check(pg_put_copy_binary_trailer(&copy->buffer));
        }
        append_data(copy);
        postgresql_check(pg_put_copy_done(&link->request));
    } else {
        put_refusal(&link->request, StringValueCStr(reason));
    }
    stream_append(stream_of(link->base.stream), link->request.at, link->request.length);
    link->request.length = 0;
    struct end end = {.error = Qnil};
    read_to_end(link, &end);
    if (NIL_P(end.error) && !NIL_P(reason)) db_link_violated(&link->base, "completed a COPY that was given up");
    return NIL_P(end.error) ? ULL2NUM(end.rows) : end.error;
}

/* @api private copy.finish(reason) -> Integer or an error. The number of rows; with a reason, gives the COPY up. */
static VALUE finish(VALUE self, VALUE reason)
{
    struct copy *copy = copy_of(self);
    if (!NIL_P(copy->error)) return copy->error;
    if (copy->ended) rb_raise(rb_eRuntimeError, "the COPY has ended");
    struct db_exchange exchange = {.self = copy->link, .body = finish_body, .arguments = {self, reason}};
    return postgresql_exchange(&exchange);
}

// ---- out

static VALUE field_value(const struct copy *copy, const struct pg_copy_field *field)
{
    if (!field->raw.at) return Qnil;
    if (!field->encoded) return rb_utf8_str_new((const char *)field->raw.at, (long)field->raw.length);
    VALUE text = rb_utf8_str_new(NULL, (long)field->raw.length);
    uint8_t *out = (uint8_t *)RSTRING_PTR(text);
    size_t length =
        copy->form == CSV ? pg_copy_csv_decode(&copy->csv, field->raw, out) : pg_copy_text_decode(field->raw, out);
    rb_str_set_len(text, (long)length);
    return text;
}

static VALUE line_values(struct copy *copy, struct pg_span line)
{
    VALUE row = rb_ary_new_capa((long)copy->columns);
    if (copy->columns == 0 && line.length == 0) return row;
    struct pg_copy_fields fields;
    struct pg_copy_field field;
    pg_copy_fields_begin(&fields, line);
    while (copy->form == CSV ? pg_copy_csv_next(&copy->csv, &fields, &field)
                             : pg_copy_text_next(&copy->text, &fields, &field))
        rb_ary_push(row, field_value(copy, &field));
    return row;
}

static VALUE tuple_values(struct postgresql_link *link, struct pg_span tuple)
{
    struct pg_row row;
    struct pg_span value;
    if (!pg_row_begin(tuple.at, tuple.at + tuple.length, &row)) db_link_violated(&link->base, "sent a malformed row");
    VALUE values = rb_ary_new_capa(row.count);
    while (pg_row_next(&row, &value))
        rb_ary_push(values, value.at ? rb_str_new((const char *)value.at, (long)value.length) : Qnil);
    if (!pg_row_complete(&row)) db_link_violated(&link->base, "sent a malformed row");
    return values;
}

// Takes one row from the bytes; Qundef for none.
static VALUE take_row(struct copy *copy, const uint8_t *p, const uint8_t *end, const uint8_t **next)
{
    struct postgresql_link *link = postgresql_link_of(copy->link);
    struct pg_span span;
    bool last = copy->done, end_of_data = false;
    enum pg_parsed parsed;
    *next = p;
    if (copy->form == BINARY && !copy->header) {
        parsed = pg_copy_binary_header(p, end, next);
        copy->header = parsed == PG_DONE;
        p = *next;
    } else {
        parsed = PG_DONE;
    }
    if (parsed == PG_DONE) {
        parsed = copy->form == BINARY ? pg_copy_binary_tuple(p, end, &span, next)
                 : copy->form == CSV  ? pg_copy_csv_record(&copy->csv, p, end, last, &span, next, &end_of_data)
                                      : pg_copy_text_line(p, end, last, &span, next, &end_of_data);
    }
    if (parsed == PG_INVALID) db_link_violated(&link->base, "sent a malformed row of a COPY");
    if (parsed == PG_MORE) return Qundef;
    if (copy->form == BINARY) return span.at ? tuple_values(link, span) : Qnil;
    VALUE row = end_of_data && copy->form == TEXT ? Qnil : line_values(copy, span);
    if (!NIL_P(row) && (uint32_t)RARRAY_LEN(row) != copy->columns)
        db_link_violated(&link->base, "sent a row with other columns than it said");
    return row;
}

// Appends all whole rows to the batch, and keeps the rest for the next message.
static void take_rows(struct copy *copy, const uint8_t *p, const uint8_t *end, VALUE batch)
{
    bool kept = copy->buffer.length > 0;
    if (kept) {
        postgresql_check(pg_put_bytes(&copy->buffer, p, (size_t)(end - p)));
        p = copy->buffer.at;
        end = p + copy->buffer.length;
    }
    const uint8_t *next = p;
    while (p < end) {
        VALUE row = take_row(copy, p, end, &next);
        p = next;
        if (row == Qundef) break;
        if (!NIL_P(row)) rb_ary_push(batch, row);
    }
    size_t left = (size_t)(end - p);
    if (kept) {
        memmove(copy->buffer.at, p, left);
        copy->buffer.length = left;
    } else if (left) {
        postgresql_check(pg_put_bytes(&copy->buffer, p, left));
    }
}

static bool has_whole_message(struct postgresql_link *link)
{
    size_t buffered;
    const uint8_t *p = stream_buffered(stream_of(link->base.stream), &buffered);
    struct pg_message message;
    if (buffered <= link->base.pending) return false;
    return pg_message(p + link->base.pending, p + buffered, &message) == PG_DONE;
}

static VALUE bytes_of(const struct copy *copy, struct pg_message message)
{
    const char *bytes = (const char *)message.p;
    long length = (long)(message.end - message.p);
    return copy->form == BINARY || copy->foreign ? rb_str_new(bytes, length) : rb_utf8_str_new(bytes, length);
}

static VALUE rows_body(struct db_exchange *exchange)
{
    struct postgresql_link *link = exchange->link;
    struct copy *copy = copy_of(exchange->arguments[0]);
    VALUE batch = rb_ary_new();
    size_t bytes = 0;
    struct end end = {.error = copy->error};
    while (!RARRAY_LEN(batch) || (RARRAY_LEN(batch) < BATCH_ROWS && bytes < BATCH_BYTES && has_whole_message(link))) {
        struct pg_message message = postgresql_message(link);
        if (message.type == PG_COPY_DATA && !copy->done) {
            bytes += message.whole;
            if (copy->raw) {
                rb_ary_push(batch, bytes_of(copy, message));
            } else {
                take_rows(copy, message.p, message.end, batch);
            }
        } else if (message.type == PG_COPY_DONE && !copy->done) {
            copy->done = true;
            take_rows(copy, NULL, NULL, batch);
            if (copy->buffer.length) db_link_violated(&link->base, "ended a COPY in the middle of a row");
        } else {
            bool more = read_end(link, message, &end);
            RB_OBJ_WRITE(exchange->arguments[0], &copy->error, end.error);
            if (end.counted) copy->rows = end.rows;
            if (!more) {
                copy->ended = true;
                if (NIL_P(end.error) && !copy->done) db_link_violated(&link->base, "ended a COPY without its end");
                break;
            }
        }
    }
    return batch;
}

/* @api private copy.rows -> Array or nil: some rows, at least one; nil at the end */
static VALUE rows(VALUE self)
{
    struct copy *copy = copy_of(self);
    if (copy->ended) return Qnil;
    struct db_exchange exchange = {.self = copy->link, .body = rows_body, .arguments = {self}};
    VALUE batch = postgresql_exchange(&exchange);
    return RARRAY_LEN(batch) ? batch : Qnil;
}

/* @api private copy.result -> Integer or an error: how many rows the server has sent */
static VALUE result(VALUE self)
{
    const struct copy *copy = copy_of(self);
    return NIL_P(copy->error) ? ULL2NUM(copy->rows) : copy->error;
}

void postgresql_copy_init(void)
{
    id_convert = rb_intern("convert");
    mParameters = Qnil;
    VALUE postgresql = rb_path2class("Heddle::DB::PostgreSQL");
    cCopyIn = rb_define_class_under(postgresql, "CopyIn", rb_cObject);
    cCopyOut = rb_define_class_under(postgresql, "CopyOut", rb_cObject);
    rb_gc_register_mark_object(cCopyIn);
    rb_gc_register_mark_object(cCopyOut);
    rb_undef_alloc_func(cCopyIn);
    rb_undef_alloc_func(cCopyOut);
    rb_define_singleton_method(postgresql_cLink, "copy_options", copy_options, 1);
    rb_define_method(postgresql_cLink, "start_copy", start_copy, 2);
    rb_define_singleton_method(cCopyIn, "of", copy_new, 3);
    rb_define_method(cCopyIn, "<<", add_row, 1);
    rb_define_method(cCopyIn, "write", write_copied, 1);
    rb_define_method(cCopyIn, "finish", finish, 1);
    rb_define_singleton_method(cCopyOut, "of", copy_new, 3);
    rb_define_method(cCopyOut, "rows", rows, 0);
    rb_define_method(cCopyOut, "result", result, 0);
}
