// Heddle::DB::PostgreSQL::CopyIn: rows to the server.
#include "db/postgresql/copy.h"

#include "wire/postgresql/digits.h"

enum { SEND_AT = 64 << 10 }; // bytes of rows that are gathered for one CopyData

static VALUE mParameters;
static ID id_convert, id_row;

static VALUE postgresql_hexadecimal(VALUE bytes)
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
static VALUE postgresql_text_of(const struct postgresql_copy *copy, VALUE value, long number, bool converted)
{
    if (NIL_P(value)) return value;
    if (value == Qtrue || value == Qfalse) return rb_utf8_str_new_cstr(value == Qtrue ? "t" : "f");
    if (SYMBOL_P(value)) value = rb_sym2str(value);
    if (RB_TYPE_P(value, T_STRING)) {
        rb_encoding *encoding = rb_enc_get(value);
        if (encoding == rb_ascii8bit_encoding()) return postgresql_hexadecimal(value);
        if (encoding == rb_utf8_encoding()) return rb_str_new_frozen(value);
        return rb_str_encode(value, rb_enc_from_encoding(rb_utf8_encoding()), 0, Qnil);
    }
    if (RB_FLOAT_TYPE_P(value) || RB_INTEGER_TYPE_P(value)) return rb_obj_as_string(value);
    if (NIL_P(mParameters)) mParameters = db_class("Heddle::DB::PostgreSQL::Parameters");
    VALUE local = postgresql_protocol_of(copy->protocol)->local ? Qtrue : Qfalse;
    VALUE pair = rb_funcall(mParameters, id_convert, 3, value, local, LONG2NUM(number));
    Check_Type(pair, T_ARRAY);
    if (RARRAY_LEN(pair) == 1 && !converted) return postgresql_text_of(copy, rb_ary_entry(pair, 0), number, true);
    if (RARRAY_LEN(pair) != 2)
        rb_raise(rb_eTypeError,
                 "argument %ld is of the class %" PRIsVALUE ", which has no form as text: a COPY cannot take it",
                 number, rb_obj_class(value));
    VALUE text = rb_ary_entry(pair, 1);
    return rb_str_new_frozen(StringValue(text));
}

static enum pg_written put_span(struct postgresql_copy *copy, struct pg_span span, bool only)
{
    switch (copy->form) {
    case POSTGRESQL_COPY_TEXT: return pg_put_copy_text(&copy->buffer, &copy->text, span);
    case POSTGRESQL_COPY_CSV: return pg_put_copy_csv(&copy->buffer, &copy->csv, span, only);
    default: return pg_put_value(&copy->buffer, span);
    }
}

static enum pg_written postgresql_put_digits(struct postgresql_copy *copy, const uint8_t *digits, size_t length,
                                             bool only)
{
    return copy->plain ? pg_put_bytes(&copy->buffer, digits, length)
                       : put_span(copy, (struct pg_span){digits, length}, only);
}

static bool postgresql_is_text(VALUE string)
{
    int encoding = rb_enc_get_index(string);
    return encoding == rb_utf8_encindex() || encoding == rb_usascii_encindex();
}

static bool is_typed(const struct postgresql_copy *copy)
{
    return copy->form == POSTGRESQL_COPY_BINARY && !NIL_P(copy->described);
}

// False for a value that text_of must turn into text first.
static bool postgresql_put_value(struct postgresql_copy *copy, VALUE value, bool only, bool made,
                                 enum pg_written *written)
{
    uint8_t digits[PG_DIGITS_MOST];
    if (NIL_P(value)) {
        *written = put_span(copy, (struct pg_span){NULL, 0}, only);
    } else if (RB_TYPE_P(value, T_STRING) &&
               (made || copy->form == POSTGRESQL_COPY_BINARY || postgresql_is_text(value))) {
        struct pg_span span = {(const uint8_t *)RSTRING_PTR(value), (size_t)RSTRING_LEN(value)};
        *written = put_span(copy, span, only);
    } else if (copy->form == POSTGRESQL_COPY_BINARY) {
        return false;
    } else if (FIXNUM_P(value)) {
        *written = postgresql_put_digits(copy, digits, pg_integer_digits(FIX2LONG(value), digits), only);
    } else if (RB_FLOAT_TYPE_P(value)) {
        size_t length = pg_float_digits(RFLOAT_VALUE(value), digits);
        if (!length) return false;
        *written = postgresql_put_digits(copy, digits, length, only);
    } else if (value == Qtrue || value == Qfalse) {
        const uint8_t *text = (const uint8_t *)(value == Qtrue ? "t" : "f");
        *written = put_span(copy, (struct pg_span){text, 1}, only);
    } else {
        return false;
    }
    return true;
}

static enum pg_written put_between(struct postgresql_copy *copy, bool first)
{
    if (first || copy->form == POSTGRESQL_COPY_BINARY) return PG_WRITTEN;
    return pg_put_8(&copy->buffer, copy->form == POSTGRESQL_COPY_TEXT ? copy->text.delimiter : copy->csv.delimiter);
}

static void check_written(struct postgresql_copy *copy, enum pg_written written, size_t begin)
{
    if (written == PG_WRITTEN) return;
    copy->buffer.length = begin;
    if (written == PG_OUT_OF_RANGE)
        rb_raise(rb_eArgError, "an empty text would be read as NULL: give the COPY another NULL");
    postgresql_check(written);
}

// Runs no Ruby code: another thread's row must not come into this one. Returns false, and writes nothing, if a value is
// not text (of the binary form, bytes) yet. `made`: all Strings are. The row has as many values as the COPY.
static bool put_row(struct postgresql_copy *copy, VALUE row, bool made)
{
    size_t begin = copy->buffer.length;
    long count = RARRAY_LEN(row);
    enum pg_written written = PG_WRITTEN;
    if (copy->form == POSTGRESQL_COPY_BINARY) written = pg_put_copy_binary_tuple(&copy->buffer, (size_t)count);
    const struct postgresql_columns *types = is_typed(copy) && !made ? postgresql_columns_of(copy->described) : NULL;
    for (long i = 0; i < count && !written; i++) {
        written = put_between(copy, i == 0);
        if (written) break;
        VALUE value = RARRAY_AREF(row, i);
        bool known = types ? postgresql_copy_put_plain(postgresql_protocol_of(copy->protocol), &copy->buffer,
                                                       types->columns[i].type.kind, value, &written)
                           : postgresql_put_value(copy, value, count == 1, made, &written);
        if (!known) {
            copy->buffer.length = begin;
            return false;
        }
    }
    if (!written && copy->form != POSTGRESQL_COPY_BINARY) written = pg_put_8(&copy->buffer, '\n');
    check_written(copy, written, begin);
    copy->whole = copy->buffer.length;
    return true;
}

static VALUE text_row(struct postgresql_copy *copy, VALUE row)
{
    if (is_typed(copy)) {
        VALUE bytes = rb_funcall(copy->converter, id_row, 2, row, ULL2NUM(copy->added + 1));
        Check_Type(bytes, T_ARRAY);
        return bytes;
    }
    VALUE made = rb_ary_new_capa(RARRAY_LEN(row));
    for (long i = 0; i < RARRAY_LEN(row); i++) {
        VALUE value = RARRAY_AREF(row, i);
        bool known = NIL_P(value) || FIXNUM_P(value) || value == Qtrue || value == Qfalse;
        if (copy->form == POSTGRESQL_COPY_BINARY && !NIL_P(value) && !RB_TYPE_P(value, T_STRING))
            rb_raise(rb_eTypeError,
                     "value %ld of the row is of the class %" PRIsVALUE
                     ": the types of this COPY's columns are not known, so that it takes Strings of the server's own "
                     "bytes; name the table and its columns, or use the text form",
                     i + 1, rb_obj_class(value));
        rb_ary_push(made, known || copy->form == POSTGRESQL_COPY_BINARY
                              ? value
                              : postgresql_text_of(copy, value, i + 1, false));
    }
    return made;
}

static void begin_data(struct postgresql_copy *copy)
{
    size_t message;
    copy->buffer.length = copy->whole = 0;
    postgresql_check(pg_copy_data_begin(&copy->buffer, &message));
    if (copy->form == POSTGRESQL_COPY_BINARY && !copy->header && !copy->raw) {
        postgresql_check(pg_put_copy_binary_header(&copy->buffer));
        copy->header = true;
    }
    copy->whole = copy->buffer.length;
}

// Call this before data is added. Drops the beginning of a row for which memory ran out, and begins a CopyData if none
// is open.
static void prepare_buffer(struct postgresql_copy *copy)
{
    if (copy->buffer.length > copy->whole) copy->buffer.length = copy->whole;
    if (copy->buffer.length == 0) begin_data(copy);
}

static void append_data(struct postgresql_copy *copy)
{
    if (copy->buffer.length > copy->whole) copy->buffer.length = copy->whole;
    if (copy->buffer.length <= PG_HEADER) return;
    postgresql_check(pg_copy_data_end(&copy->buffer, 0));
    stream_append(stream_of(postgresql_protocol_of(copy->protocol)->base.stream), copy->buffer.at, copy->buffer.length);
    copy->buffer.length = copy->whole = 0;
}

// The server may have refused the data by now, and ignores what is sent then.
static VALUE flush_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    struct postgresql_copy *copy = postgresql_copy_of(exchange->arguments[0]);
    struct stream *stream = stream_of(protocol->base.stream);
    append_data(copy);
    stream_flush(stream);
    enum postgresql_arrived arrived = postgresql_consume_input(protocol);
    if (arrived == POSTGRESQL_GONE) stream_need(stream, 1);
    if (arrived != POSTGRESQL_MESSAGE) return Qnil;
    struct postgresql_copy_end end = {.error = Qnil};
    postgresql_copy_read_to_end(protocol, &end);
    if (NIL_P(end.error)) db_protocol_violated(&protocol->base, "ended a COPY that was going on");
    RB_OBJ_WRITE(exchange->arguments[0], &copy->error, end.error);
    copy->ended = true;
    return Qnil;
}

static void check_open(struct postgresql_copy *copy)
{
    if (!NIL_P(copy->error)) rb_exc_raise(copy->error);
    if (copy->ended) rb_raise(rb_path2class("Heddle::DB::StatementClosed"), "this COPY has ended: its block was left");
}

static void flush(VALUE self, struct postgresql_copy *copy)
{
    struct db_exchange exchange = {.self = copy->protocol, .body = flush_body, .arguments = {self}};
    postgresql_exchange(&exchange);
    if (!NIL_P(copy->error)) rb_exc_raise(copy->error);
}

/*
 * call-seq: copy << row -> self
 *
 * Adds a row: an Array with a value for each column of the COPY. Values are those that queries take as arguments; nil
 * is NULL. Rows are gathered, and sent in pieces of 64 KiB.
 *
 * In the binary form a value must fit its column's type: the server converts nothing. An Integer goes into numbers and
 * text, a Time into timestamps, dates and times. A String is text for columns of text, json, enums, uuid, numeric, bit
 * strings and addresses, and bytes for a bytea. A String in binary encoding is the value as the server stores it, for
 * all types.
 *
 * Raises TypeError, ArgumentError or RangeError for a row that cannot be sent, and has sent nothing of it then; in the
 * binary form the message has the number of the row and the column's name. Raises the server's Heddle::DB::ServerError
 * if the server has refused an earlier row.
 */
static VALUE add_row(VALUE self, VALUE row)
{
    struct postgresql_copy *copy = postgresql_copy_of(self);
    check_open(copy);
    Check_Type(row, T_ARRAY);
    if (copy->foreign)
        rb_raise(rb_eArgError, "the rows of this COPY are in an encoding of its own: leave the statement's encoding "
                               "out, or give bytes in that encoding (write)");
    if (copy->heading && !copy->raw)
        rb_raise(rb_eArgError, "the server would leave the first row out: leave the statement's header out, or give "
                               "the header's line first (write)");
    if (RARRAY_LEN(row) != (long)copy->columns)
        rb_raise(rb_eArgError, "the row has %ld values, and the COPY %u columns", RARRAY_LEN(row), copy->columns);
    prepare_buffer(copy);
    if (!put_row(copy, row, false)) {
        VALUE made = text_row(copy, row);
        check_open(copy); // Ruby code ran
        prepare_buffer(copy);
        if (RARRAY_LEN(made) != (long)copy->columns || !put_row(copy, made, true))
            rb_raise(rb_eArgError, "the row was changed while it was being added");
        RB_GC_GUARD(made);
    }
    copy->added++;
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
    struct postgresql_copy *copy = postgresql_copy_of(self);
    check_open(copy);
    bytes = rb_str_new_frozen(StringValue(bytes));
    size_t length = (size_t)RSTRING_LEN(bytes), done = 0;
    if (!copy->header) copy->raw = true; // the header is the caller's
    while (done < length) {
        prepare_buffer(copy);
        size_t piece = length - done < SEND_AT ? length - done : SEND_AT;
        postgresql_check(pg_put_bytes(&copy->buffer, RSTRING_PTR(bytes) + done, piece));
        copy->whole = copy->buffer.length;
        done += piece;
        if (copy->buffer.length >= SEND_AT) {
            flush(self, copy);
            check_open(copy);
        }
    }
    RB_GC_GUARD(bytes);
    return SIZET2NUM(length);
}

static VALUE postgresql_finish_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    struct postgresql_copy *copy = postgresql_copy_of(exchange->arguments[0]);
    VALUE reason = exchange->arguments[1];
    copy->ended = true;
    if (NIL_P(reason)) {
        if (copy->form == POSTGRESQL_COPY_BINARY && !copy->raw) {
            prepare_buffer(copy); // with the header, unless it was sent already
            postgresql_check(pg_put_copy_binary_trailer(&copy->buffer));
            copy->whole = copy->buffer.length;
        }
        append_data(copy);
        postgresql_check(pg_put_copy_done(&protocol->request));
    } else {
        postgresql_copy_put_refusal(&protocol->request, StringValueCStr(reason));
    }
    stream_append(stream_of(protocol->base.stream), protocol->request.at, protocol->request.length);
    protocol->request.length = 0;
    struct postgresql_copy_end end = {.error = Qnil};
    postgresql_copy_read_to_end(protocol, &end);
    if (NIL_P(end.error) && !NIL_P(reason)) db_protocol_violated(&protocol->base, "completed a COPY that was given up");
    return NIL_P(end.error) ? ULL2NUM(end.rows) : end.error;
}

/* @api private copy.finish(reason) -> Integer or an error. The number of rows; with a reason, gives the COPY up. */
static VALUE postgresql_finish(VALUE self, VALUE reason)
{
    struct postgresql_copy *copy = postgresql_copy_of(self);
    if (!NIL_P(copy->error)) return copy->error;
    if (copy->ended) rb_raise(rb_eRuntimeError, "the COPY has ended");
    struct db_exchange exchange = {.self = copy->protocol, .body = postgresql_finish_body, .arguments = {self, reason}};
    return postgresql_exchange(&exchange);
}

/* @api private CopyIn.of(protocol, columns, options) */
static VALUE copy_in_of(VALUE klass, VALUE protocol, VALUE columns, VALUE options)
{
    return postgresql_copy_new(klass, protocol, columns, options);
}

void postgresql_copy_in_define(void)
{
    id_convert = rb_intern("convert_untyped");
    id_row = rb_intern("row");
    mParameters = Qnil;
    VALUE postgresql = rb_path2class("Heddle::DB::PostgreSQL");
    VALUE copy_in = rb_define_class_under(postgresql, "CopyIn", rb_cObject);
    rb_gc_register_mark_object(copy_in);
    rb_undef_alloc_func(copy_in);
    rb_define_singleton_method(copy_in, "of", copy_in_of, 3);
    rb_define_method(copy_in, "<<", add_row, 1);
    rb_define_method(copy_in, "write", write_copied, 1);
    rb_define_method(copy_in, "finish", postgresql_finish, 1);
}
