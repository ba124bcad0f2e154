// Heddle::DB::PostgreSQL::CopyOut: rows of the server.
#include "db/postgresql/copy.h"

#include <string.h>

enum {
    BATCH_ROWS = 256,        // most rows that are handed out at once
    BATCH_BYTES = 256 << 10, // … and about as many bytes
    ROW_COST = 16            // time for a row, as bytes that are parsed in that time
};

static VALUE field_value(const struct postgresql_copy *copy, const struct pg_copy_field *field)
{
    if (!field->raw.at) return Qnil;
    if (!field->encoded) return rb_utf8_str_new((const char *)field->raw.at, (long)field->raw.length);
    VALUE text = rb_utf8_str_new(NULL, (long)field->raw.length);
    uint8_t *out = (uint8_t *)RSTRING_PTR(text);
    size_t length = copy->form == POSTGRESQL_COPY_CSV ? pg_copy_csv_decode(&copy->csv, field->raw, out)
                                                      : pg_copy_text_decode(field->raw, out);
    rb_str_set_len(text, (long)length);
    return text;
}

static VALUE line_values(struct postgresql_copy *copy, struct pg_span line)
{
    VALUE row = rb_ary_new_capa((long)copy->columns);
    if (copy->columns == 0 && line.length == 0) return row;
    struct pg_copy_fields fields;
    struct pg_copy_field field;
    pg_copy_fields_begin(&fields, line);
    while (copy->form == POSTGRESQL_COPY_CSV ? pg_copy_csv_next(&copy->csv, &fields, &field)
                                             : pg_copy_text_next(&copy->text, &fields, &field))
        rb_ary_push(row, field_value(copy, &field));
    return row;
}

// Without described columns, the server's own bytes.
static VALUE tuple_values(struct postgresql_protocol *protocol, struct pg_span tuple, VALUE described)
{
    struct pg_row row;
    struct pg_span value;
    if (!pg_row_begin(tuple.at, tuple.at + tuple.length, &row))
        db_protocol_violated(&protocol->base, "sent a malformed row");
    if (!NIL_P(described)) { // its values are made after the exchange: Ruby code may run then
        if (row.count != postgresql_columns_of(described)->count)
            db_protocol_violated(&protocol->base, "sent a row with other columns than it had described");
        return rb_str_new((const char *)tuple.at, (long)tuple.length);
    }
    VALUE values = rb_ary_new_capa(row.count);
    while (pg_row_next(&row, &value))
        rb_ary_push(values, value.at ? rb_str_new((const char *)value.at, (long)value.length) : Qnil);
    if (!pg_row_complete(&row)) db_protocol_violated(&protocol->base, "sent a malformed row");
    return values;
}

// Takes one row from the bytes; Qundef for none.
static VALUE take_row(struct postgresql_copy *copy, const uint8_t *p, const uint8_t *end, const uint8_t **next)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(copy->protocol);
    struct pg_span span;
    bool last = copy->done, end_of_data = false;
    enum pg_parsed parsed;
    *next = p;
    if (copy->form == POSTGRESQL_COPY_BINARY && !copy->header) {
        parsed = pg_copy_binary_header(p, end, next);
        copy->header = parsed == PG_DONE;
        p = *next;
    } else {
        parsed = PG_DONE;
    }
    if (parsed == PG_DONE) {
        parsed = copy->form == POSTGRESQL_COPY_BINARY ? pg_copy_binary_tuple(p, end, &copy->scan, &span, next)
                 : copy->form == POSTGRESQL_COPY_CSV
                     ? pg_copy_csv_record(&copy->csv, p, end, last, &copy->scan, &span, next, &end_of_data)
                     : pg_copy_text_line(p, end, last, &copy->scan, &span, next, &end_of_data);
    }
    if (parsed == PG_INVALID) db_protocol_violated(&protocol->base, "sent a malformed row of a COPY");
    if (parsed == PG_MORE) return Qundef;
    if (copy->form == POSTGRESQL_COPY_BINARY) return span.at ? tuple_values(protocol, span, copy->described) : Qnil;
    VALUE row = end_of_data && copy->form == POSTGRESQL_COPY_TEXT ? Qnil : line_values(copy, span);
    if (!NIL_P(row) && (uint32_t)RARRAY_LEN(row) != copy->columns)
        db_protocol_violated(&protocol->base, "sent a row with other columns than it said");
    return row;
}

// Appends whole rows of the bytes to the batch until it is full, and returns the rest.
static const uint8_t *take_batch(struct postgresql_copy *copy, const uint8_t *p, const uint8_t *end, VALUE batch)
{
    copy->more = false;
    const uint8_t *next = p;
    while (p < end) {
        if (RARRAY_LEN(batch) >= BATCH_ROWS) {
            copy->more = true;
            break;
        }
        VALUE row = take_row(copy, p, end, &next);
        p = next;
        if (row == Qundef) break;
        if (!NIL_P(row)) rb_ary_push(batch, row);
    }
    return p;
}

// Appends a message's bytes to the kept bytes.
static void postgresql_copy_keep(struct postgresql_copy *copy, const uint8_t *p, size_t length)
{
    struct pg_buffer *buffer = &copy->buffer;
    if (copy->start) memmove(buffer->at, buffer->at + copy->start, buffer->length -= copy->start);
    copy->start = 0;
    if (buffer->length + length > PG_MESSAGE_MOST)
        db_protocol_violated(&postgresql_protocol_of(copy->protocol)->base, "sent a row of more than 1 GiB");
    postgresql_check(pg_put_bytes(buffer, p, length));
}

// Appends whole rows to the batch, and keeps the rest of the message's bytes. Returns how many kept bytes were parsed
// again.
static size_t take_rows(struct postgresql_copy *copy, const uint8_t *p, const uint8_t *end, VALUE batch)
{
    struct pg_buffer *buffer = &copy->buffer;
    size_t again = 0;
    if (buffer->length == 0) {
        p = take_batch(copy, p, end, batch);
        if (p < end) postgresql_copy_keep(copy, p, (size_t)(end - p));
    } else {
        size_t seen = copy->scan.seen;
        if (p < end) postgresql_copy_keep(copy, p, (size_t)(end - p));
        end = buffer->at + buffer->length;
        p = take_batch(copy, buffer->at + copy->start, end, batch);
        again = (size_t)((copy->more ? p : end) - buffer->at) - copy->start - seen;
        copy->start = (size_t)(p - buffer->at);
        if (p == end) buffer->length = copy->start = 0;
    }
    if (copy->done && !copy->more && buffer->length)
        db_protocol_violated(&postgresql_protocol_of(copy->protocol)->base, "ended a COPY in the middle of a row");
    return again;
}

static VALUE postgresql_bytes_of(const struct postgresql_copy *copy, struct pg_message message)
{
    const char *bytes = (const char *)message.p;
    long length = (long)(message.end - message.p);
    return copy->form == POSTGRESQL_COPY_BINARY || copy->foreign ? rb_str_new(bytes, length)
                                                                 : rb_utf8_str_new(bytes, length);
}

static VALUE rows_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    struct postgresql_copy *copy = postgresql_copy_of(exchange->arguments[0]);
    struct stream *stream = stream_of(protocol->base.stream);
    VALUE batch = rb_ary_new();
    size_t bytes = 0;
    struct postgresql_copy_end end = {.error = copy->error};
    size_t again = copy->more ? take_rows(copy, NULL, NULL, batch) : 0;
    again += ROW_COST * (size_t)RARRAY_LEN(batch);
    while (!copy->more && (!RARRAY_LEN(batch) || (RARRAY_LEN(batch) < BATCH_ROWS && bytes < BATCH_BYTES &&
                                                  postgresql_has_message(protocol)))) {
        stream_parsed(stream, again);
        struct pg_message message = postgresql_message(protocol);
        if (message.type == PG_COPY_DATA && !copy->done) {
            bytes += message.whole;
            if (copy->raw) {
                rb_ary_push(batch, postgresql_bytes_of(copy, message));
            } else {
                again = take_rows(copy, message.p, message.end, batch);
            }
        } else if (message.type == PG_COPY_DONE && !copy->done) {
            copy->done = true;
            take_rows(copy, NULL, NULL, batch);
        } else {
            bool more = postgresql_copy_read_end(protocol, message, &end);
            RB_OBJ_WRITE(exchange->arguments[0], &copy->error, end.error);
            if (end.counted) copy->rows = end.rows;
            if (!more) {
                copy->ended = true;
                if (NIL_P(end.error) && !copy->done)
                    db_protocol_violated(&protocol->base, "ended a COPY without its end");
                break;
            }
        }
    }
    stream_parsed(stream, again);
    return batch;
}

/* @api private copy.rows -> Array or nil: some rows, at least one; nil at the end */
static VALUE rows(VALUE self)
{
    struct postgresql_copy *copy = postgresql_copy_of(self);
    if (copy->ended) return Qnil;
    struct db_exchange exchange = {.self = copy->protocol, .body = rows_body, .arguments = {self}};
    VALUE batch = postgresql_exchange(&exchange);
    if (!NIL_P(copy->described) && !copy->raw) {
        struct postgresql_protocol *protocol = postgresql_protocol_of(copy->protocol);
        for (long i = 0; i < RARRAY_LEN(batch); i++)
            rb_ary_store(batch, i, postgresql_copy_typed_row(protocol, RARRAY_AREF(batch, i), copy->described));
    }
    return RARRAY_LEN(batch) ? batch : Qnil;
}

/* @api private copy.result -> Integer or an error: how many rows the server has sent */
static VALUE result(VALUE self)
{
    const struct postgresql_copy *copy = postgresql_copy_of(self);
    return NIL_P(copy->error) ? ULL2NUM(copy->rows) : copy->error;
}

/* @api private CopyOut.of(protocol, columns, options) */
static VALUE copy_out_of(VALUE klass, VALUE protocol, VALUE columns, VALUE options)
{
    return postgresql_copy_new(klass, protocol, columns, options);
}

void postgresql_copy_out_define(void)
{
    VALUE postgresql = rb_path2class("Heddle::DB::PostgreSQL");
    VALUE copy_out = rb_define_class_under(postgresql, "CopyOut", rb_cObject);
    rb_gc_register_mark_object(copy_out);
    rb_undef_alloc_func(copy_out);
    rb_define_singleton_method(copy_out, "of", copy_out_of, 3);
    rb_define_method(copy_out, "rows", rows, 0);
    rb_define_method(copy_out, "result", result, 0);
}
