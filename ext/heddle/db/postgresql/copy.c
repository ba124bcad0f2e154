// The beginning and the end of a COPY, which both directions have in common.
#include "db/postgresql/copy.h"

#include "references.h"
#include "wire/postgresql/sql_tokens.h"

#include <string.h>
#include <strings.h>

static void postgresql_copy_references(void *pointer, reference_function *each)
{
    struct postgresql_copy *copy = pointer;
    each(&copy->protocol);
    each(&copy->error);
    each(&copy->described);
    each(&copy->converter);
}

static void postgresql_copy_mark(void *pointer)
{
    postgresql_copy_references(pointer, reference_mark);
    rb_gc_mark(((const struct postgresql_copy *)pointer)->null); // the forms point into it
}

static void postgresql_copy_compact(void *pointer)
{
    postgresql_copy_references(pointer, reference_move);
}

static void postgresql_copy_release(void *pointer)
{
    struct postgresql_copy *copy = pointer;
    xfree(copy->buffer.at);
    xfree(copy);
}

static size_t postgresql_copy_memsize(const void *pointer)
{
    const struct postgresql_copy *copy = pointer;
    return sizeof(*copy) + copy->buffer.capacity;
}

static const rb_data_type_t copy_type = {
    .wrap_struct_name = "Heddle::DB::PostgreSQL::Copy",
    .function = {.dmark = postgresql_copy_mark,
                 .dfree = postgresql_copy_release,
                 .dsize = postgresql_copy_memsize,
                 .dcompact = postgresql_copy_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

struct postgresql_copy *postgresql_copy_of(VALUE self)
{
    return rb_check_typeddata(self, &copy_type);
}

// ---- statements

static bool postgresql_is_word(const struct pg_sql_scan *scan, const char *word)
{
    return scan->token == PG_SQL_WORD && scan->text.length == strlen(word) &&
           strncasecmp((const char *)scan->text.at, word, scan->text.length) == 0;
}

// Moves to what the COPY is of, behind the word BINARY that servers before 7.3 wanted in front, and others still read.
// Returns false for another statement.
static bool begin_copy(struct pg_sql_scan *scan, VALUE sql, bool backslashes, bool *binary)
{
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    pg_sql_begin(scan, p, p + RSTRING_LEN(sql), backslashes);
    while (pg_sql_next(scan) == PG_SQL_SEMICOLON)
        continue;
    if (!postgresql_is_word(scan, "copy")) return false;
    pg_sql_next(scan);
    *binary = postgresql_is_word(scan, "binary");
    if (*binary) pg_sql_next(scan);
    return true;
}

/* @api private protocol.copy_options(sql) -> Array of String: the tokens behind FROM STDIN or TO STDOUT, and in front
 * of them "binary" for COPY BINARY */
static VALUE copy_options(VALUE self, VALUE sql)
{
    sql = postgresql_sql_string(sql);
    VALUE options = rb_ary_new();
    struct pg_sql_scan scan;
    bool behind = false, binary;
    size_t depth = 0;
    bool direction = false; // the word before is FROM or TO
    if (!begin_copy(&scan, sql, postgresql_protocol_of(self)->backslashes, &binary)) return options;
    if (binary) rb_ary_push(options, rb_utf8_str_new_cstr("binary"));
    for (; scan.token != PG_SQL_END; pg_sql_next(&scan)) {
        if (behind) rb_ary_push(options, rb_utf8_str_new((const char *)scan.text.at, (long)scan.text.length));
        if (scan.token == PG_SQL_OPEN) depth++;
        if (scan.token == PG_SQL_CLOSE && depth > 0) depth--;
        if (depth == 0 && direction && (postgresql_is_word(&scan, "stdin") || postgresql_is_word(&scan, "stdout")))
            behind = true;
        direction = postgresql_is_word(&scan, "from") || postgresql_is_word(&scan, "to");
    }
    RB_GC_GUARD(sql);
    return options;
}

static VALUE text_between(const uint8_t *p, const uint8_t *end)
{
    return rb_utf8_str_new((const char *)p, end - p);
}

// The names of the columns, each as the statement has it, up to the closing parenthesis; nil without one.
static VALUE column_list(struct pg_sql_scan *scan)
{
    VALUE list = rb_ary_new();
    const uint8_t *begin = NULL, *end = NULL;
    while (pg_sql_next(scan) != PG_SQL_END) {
        bool closed = scan->token == PG_SQL_CLOSE;
        if (!closed && scan->token != PG_SQL_COMMA) {
            if (!begin) begin = scan->text.at;
            end = scan->text.at + scan->text.length;
            continue;
        }
        if (!begin) return Qnil;
        rb_ary_push(list, text_between(begin, end));
        begin = NULL;
        if (closed) return list;
    }
    return Qnil;
}

// The query in parentheses, which the scan has opened; nil if they do not close.
static VALUE query_text(struct pg_sql_scan *scan)
{
    const uint8_t *begin = scan->text.at + scan->text.length;
    for (size_t depth = 1; pg_sql_next(scan) != PG_SQL_END;) {
        if (scan->token == PG_SQL_OPEN) depth++;
        if (scan->token == PG_SQL_CLOSE && --depth == 0) return text_between(begin, scan->text.at);
    }
    return Qnil;
}

/* @api private protocol.copy_target(sql) -> [table, Array of the columns or nil], or [query, false]: what a COPY is
 * from or to, as the statement has it. nil if it cannot be told. */
static VALUE copy_target(VALUE self, VALUE sql)
{
    sql = postgresql_sql_string(sql);
    struct pg_sql_scan scan;
    bool binary;
    if (!begin_copy(&scan, sql, postgresql_protocol_of(self)->backslashes, &binary)) return Qnil;
    VALUE target = Qnil, columns = Qfalse;
    if (scan.token == PG_SQL_OPEN) {
        target = query_text(&scan);
    } else {
        const uint8_t *begin = scan.text.at, *end = begin;
        while (scan.token != PG_SQL_END && scan.token != PG_SQL_OPEN && !postgresql_is_word(&scan, "from") &&
               !postgresql_is_word(&scan, "to")) {
            end = scan.text.at + scan.text.length;
            pg_sql_next(&scan);
        }
        columns = scan.token == PG_SQL_OPEN ? column_list(&scan) : Qnil;
        if (scan.token != PG_SQL_END && end > begin) target = text_between(begin, end);
    }
    RB_GC_GUARD(sql);
    return NIL_P(target) ? Qnil : rb_assoc_new(target, columns);
}

// ---- replies

static void ended(struct postgresql_protocol *protocol)
{
    postgresql_become(protocol, POSTGRESQL_EXTENDED);
    db_protocol_replied(&protocol->base, stream_of(protocol->base.stream));
}

bool postgresql_copy_read_end(struct postgresql_protocol *protocol, struct pg_message message,
                              struct postgresql_copy_end *end)
{
    struct pg_command command;
    switch (message.type) {
    case PG_READY_FOR_QUERY:
        if (!pg_ready_for_query(message.p, message.end, &protocol->transaction))
            db_protocol_violated(&protocol->base, "sent a malformed state of the transaction");
        ended(protocol);
        return false;
    case PG_COMMAND_COMPLETE:
        if (!pg_command(message.p, message.end, &command))
            db_protocol_violated(&protocol->base, "sent a malformed end of a statement");
        end->counted = true;
        end->rows = command.counted ? command.rows : 0;
        return true;
    case PG_ERROR_RESPONSE:
        if (NIL_P(end->error) || postgresql_is_fatal(message)) end->error = postgresql_error_value(message);
        return !postgresql_is_fatal(message);
    default: db_protocol_violated(&protocol->base, "sent a message that has no place in a COPY");
    }
}

void postgresql_copy_read_to_end(struct postgresql_protocol *protocol, struct postgresql_copy_end *end)
{
    while (postgresql_copy_read_end(protocol, postgresql_message(protocol), end))
        continue;
    if (NIL_P(end->error) && !end->counted) db_protocol_violated(&protocol->base, "ended a COPY without its end");
}

static VALUE start_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    VALUE sql = exchange->arguments[0];
    bool into = RTEST(exchange->arguments[1]);
    exchange->unsent = true;
    VALUE ended = postgresql_ask_text(exchange, postgresql_span_of(sql));
    if (!NIL_P(ended)) return ended;
    struct pg_message message = postgresql_message(protocol);
    while (message.type == PG_CLOSE_COMPLETE) // of statements whose Close went ahead
        message = postgresql_message(protocol);
    if (message.type != (into ? PG_COPY_IN_RESPONSE : PG_COPY_OUT_RESPONSE)) {
        struct postgresql_copy_end end = {.error = Qnil};
        if (message.type != PG_ERROR_RESPONSE) db_protocol_violated(&protocol->base, "did not begin the COPY");
        if (postgresql_copy_read_end(protocol, message, &end)) postgresql_copy_read_to_end(protocol, &end);
        return end.error;
    }
    struct pg_copy copy;
    if (!pg_copy_response(message.p, message.end, &copy))
        db_protocol_violated(&protocol->base, "sent a malformed beginning of a COPY");
    postgresql_become(protocol, into ? POSTGRESQL_COPY_IN : POSTGRESQL_COPY_OUT);
    return rb_assoc_new(UINT2NUM(copy.columns), copy.format == PG_BINARY ? Qtrue : Qfalse);
}

/* @api private protocol.start_copy(sql, into) -> [columns, binary] or an error */
static VALUE start_copy(VALUE self, VALUE sql, VALUE into)
{
    return postgresql_exchange_with(self, start_body, postgresql_sql_string(sql), into);
}

static VALUE describe_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    static const struct pg_span unnamed = {(const uint8_t *)"", 0};
    exchange->unsent = true;
    postgresql_check(pg_put_parse(&protocol->request, unnamed, postgresql_span_of(exchange->arguments[0]), NULL, 0));
    postgresql_check(pg_put_describe(&protocol->request, PG_STATEMENT, unnamed));
    postgresql_check(pg_put_sync(&protocol->request));
    exchange->unsent = false;
    postgresql_ask(protocol);
    VALUE columns = Qnil;
    struct postgresql_copy_end end = {.error = Qnil};
    for (;;) {
        struct pg_message message = postgresql_message(protocol);
        switch (message.type) {
        case PG_CLOSE_COMPLETE: // of statements whose Close went ahead
        case PG_PARSE_COMPLETE:
        case PG_PARAMETER_DESCRIPTION:
        case PG_NO_DATA: continue;
        case PG_ROW_DESCRIPTION: columns = postgresql_columns_new(protocol, message); continue;
        case PG_COMMAND_COMPLETE: db_protocol_violated(&protocol->base, "completed a statement that was not executed");
        default:
            if (postgresql_copy_read_end(protocol, message, &end)) continue;
        }
        return NIL_P(end.error) ? columns : end.error;
    }
}

/* @api private protocol.describe(sql) -> Columns, nil or an error: the columns of what the statement would return.
 * Nothing is executed, and the text is the server's own, without placeholders. */
static VALUE copy_describe(VALUE self, VALUE sql)
{
    return postgresql_exchange_with(self, describe_body, postgresql_sql_string(sql), Qnil);
}

static uint8_t byte_of(VALUE hash, const char *name, uint8_t usual)
{
    VALUE string = rb_hash_lookup(hash, ID2SYM(rb_intern(name)));
    if (NIL_P(string)) return usual;
    if (RSTRING_LEN(StringValue(string)) != 1) rb_raise(rb_eArgError, "the %s of a COPY is one byte", name);
    return (uint8_t)*RSTRING_PTR(string);
}

VALUE postgresql_copy_new(VALUE klass, VALUE protocol, VALUE columns, VALUE options)
{
    struct postgresql_copy *copy;
    VALUE self = TypedData_Make_Struct(klass, struct postgresql_copy, &copy_type, copy);
    postgresql_protocol_of(protocol);
    RB_OBJ_WRITE(self, &copy->protocol, protocol);
    copy->null = copy->error = copy->described = copy->converter = Qnil;
    copy->buffer.grow = postgresql_grow;
    copy->columns = NUM2UINT(columns);
    VALUE format = rb_hash_lookup(options, ID2SYM(rb_intern("format")));
    copy->form = format == ID2SYM(rb_intern("binary")) ? POSTGRESQL_COPY_BINARY
                 : format == ID2SYM(rb_intern("csv"))  ? POSTGRESQL_COPY_CSV
                                                       : POSTGRESQL_COPY_TEXT;
    VALUE described = rb_hash_lookup(options, ID2SYM(rb_intern("described")));
    if (copy->form == POSTGRESQL_COPY_BINARY && !NIL_P(described)) {
        const struct postgresql_columns *types = postgresql_columns_of(described);
        for (uint32_t i = 0; i < types->count; i++)
            postgresql_column_known(postgresql_protocol_of(protocol), described, i);
        RB_OBJ_WRITE(self, &copy->described, described);
        RB_OBJ_WRITE(self, &copy->converter, rb_hash_lookup(options, ID2SYM(rb_intern("converter"))));
    }
    copy->raw = RTEST(rb_hash_lookup(options, ID2SYM(rb_intern("raw"))));
    copy->foreign = RTEST(rb_hash_lookup(options, ID2SYM(rb_intern("encoding"))));
    copy->heading = RTEST(rb_hash_lookup(options, ID2SYM(rb_intern("header"))));
    copy->text = pg_copy_text_default;
    copy->csv = pg_copy_csv_default;
    copy->text.delimiter = byte_of(options, "delimiter", copy->text.delimiter);
    copy->csv.delimiter = byte_of(options, "delimiter", copy->csv.delimiter);
    copy->csv.quote = byte_of(options, "quote", copy->csv.quote);
    copy->csv.escape = byte_of(options, "escape", copy->csv.quote);
    copy->plain = copy->form == POSTGRESQL_COPY_TEXT ? copy->text.delimiter == '\t' : copy->csv.delimiter == ',';
    VALUE null = rb_hash_lookup(options, ID2SYM(rb_intern("null")));
    if (!NIL_P(null)) RB_OBJ_WRITE(self, &copy->null, rb_str_new_frozen(StringValue(null)));
    if (!NIL_P(copy->null)) {
        struct pg_span span = {(const uint8_t *)RSTRING_PTR(copy->null), (size_t)RSTRING_LEN(copy->null)};
        copy->text.null = copy->csv.null = span;
        copy->plain = false;
    }
    return self;
}

void postgresql_copy_define(void)
{
    rb_define_method(postgresql_cProtocol, "copy_options", copy_options, 1);
    rb_define_method(postgresql_cProtocol, "copy_target", copy_target, 1);
    rb_define_method(postgresql_cProtocol, "describe", copy_describe, 1);
    rb_define_method(postgresql_cProtocol, "start_copy", start_copy, 2);
}
