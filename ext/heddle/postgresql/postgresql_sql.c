// What the text of a statement says, before it is sent: its kind, how many statements it has, and where its parameters
// are.
#include "postgresql/postgresql_link.h"

#include "wire/wire_postgresql_sql.h"

#include <string.h>

VALUE postgresql_sql_string(VALUE sql)
{
    VALUE string = rb_check_string_type(sql);
    if (NIL_P(string)) rb_raise(rb_eTypeError, "SQL is a String, not %+" PRIsVALUE, sql);
    rb_encoding *encoding = rb_enc_get(string);
    if (encoding != rb_utf8_encoding() && encoding != rb_ascii8bit_encoding() &&
        rb_enc_str_coderange(string) != ENC_CODERANGE_7BIT)
        string = rb_str_encode(string, rb_enc_from_encoding(rb_utf8_encoding()), 0, Qnil);
    return rb_str_new_frozen(string);
}

static VALUE textual_sql(VALUE sql, bool backslashes, uint32_t *parameters)
{
    struct pg_sql parsed;
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    pg_sql_analyse(p, p + RSTRING_LEN(sql), backslashes, &parsed);
    *parameters = parsed.highest;
    return sql;
}

VALUE postgresql_native_sql(struct postgresql_link *link, VALUE sql, uint32_t *parameters)
{
    sql = postgresql_sql_string(sql);
    if (link->textual) return textual_sql(sql, link->backslashes, parameters);
    struct pg_sql_rewriting rewriting = {.backslashes = link->backslashes};
    size_t begin = link->request.length;
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    postgresql_check(pg_sql_rewrite(&link->request, p, p + RSTRING_LEN(sql), &rewriting));
    VALUE text = rb_utf8_str_new((const char *)link->request.at + begin, (long)(link->request.length - begin));
    link->request.length = begin;
    *parameters = rewriting.parameters;
    RB_GC_GUARD(sql);
    return text;
}

// ---- kinds

// What Heddle::DB::Driver#kind returns. Of several statements the one that matters most comes last here.
enum kind { PLAIN, SESSION, OTHER, COMMIT, COPY_OUT, COPY_IN, KINDS };
static const char *const kind_names[KINDS] = {"plain", "session", "other", "commit", "copy_out", "copy_in"};
static VALUE kind_symbols[KINDS];

static enum kind kind_for(enum pg_sql_kind kind)
{
    switch (kind) {
    case PG_SQL_SELECT:
    case PG_SQL_INSERT:
    case PG_SQL_UPDATE:
    case PG_SQL_DELETE:
    case PG_SQL_MERGE:
    case PG_SQL_SHOW:
    case PG_SQL_EXPLAIN:
    case PG_SQL_NOTIFY:
    case PG_SQL_LOCK:
    case PG_SQL_SET_LOCAL:
    case PG_SQL_FETCH:
    case PG_SQL_MOVE:
        return PLAIN;
    case PG_SQL_BEGIN:
    case PG_SQL_COMMIT:
    case PG_SQL_ROLLBACK:
    case PG_SQL_PREPARE_TRANSACTION:
        return COMMIT;
    case PG_SQL_DISCARD:
    case PG_SQL_DEALLOCATE:
        return OTHER;
    case PG_SQL_COPY_IN:
        return COPY_IN;
    case PG_SQL_COPY_OUT:
        return COPY_OUT;
    default:
        return SESSION;
    }
}

/* @api private link.kind_of(sql) -> :plain, :session, :commit, :other, :copy_in or :copy_out. Several statements are
 * at least :session: they cannot be prepared. */
static VALUE kind_of(VALUE self, VALUE sql)
{
    bool backslashes = postgresql_link_of(self)->backslashes;
    sql = postgresql_sql_string(sql);
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    struct pg_sql_scan scan;
    struct pg_sql_statement statement;
    enum kind kind = KINDS;
    for (pg_sql_begin(&scan, p, p + RSTRING_LEN(sql), backslashes); pg_sql_next_statement(&scan, &statement);) {
        enum kind one = kind_for(statement.kind);
        if (statement.session && one < SESSION) one = SESSION;
        if (kind == KINDS) {
            kind = one;
            continue;
        }
        if (kind < SESSION) kind = SESSION;
        if (kind < one) kind = one;
    }
    RB_GC_GUARD(sql);
    return kind_symbols[kind == KINDS ? kind_for(PG_SQL_ANYTHING) : kind];
}

/* @api private link.statements(sql) -> Integer */
static VALUE statements(VALUE self, VALUE sql)
{
    bool backslashes = postgresql_link_of(self)->backslashes;
    sql = postgresql_sql_string(sql);
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    struct pg_sql parsed;
    pg_sql_analyse(p, p + RSTRING_LEN(sql), backslashes, &parsed);
    RB_GC_GUARD(sql);
    return UINT2NUM(parsed.statements);
}

/* @api private link.select?(sql) -> true or false: whether a cursor can be declared for it */
static VALUE select_p(VALUE self, VALUE sql)
{
    bool backslashes = postgresql_link_of(self)->backslashes;
    sql = postgresql_sql_string(sql);
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    struct pg_sql parsed;
    pg_sql_analyse(p, p + RSTRING_LEN(sql), backslashes, &parsed);
    RB_GC_GUARD(sql);
    return parsed.kind == PG_SQL_SELECT && parsed.statements == 1 ? Qtrue : Qfalse;
}

// ---- placeholders

// Characters of UTF-8.
static long characters(const uint8_t *p, const uint8_t *end)
{
    long count = 0;
    for (; p < end; p++)
        count += (*p & 0xc0) != 0x80;
    return count;
}

/* @api private link.position(sql, position) -> Integer. The position, in characters from 1, in the text that the server
 * got, as one in `sql`: a ? became $1, ?? became ?. */
static VALUE position(VALUE self, VALUE sql, VALUE place)
{
    bool backslashes = postgresql_link_of(self)->backslashes;
    StringValue(sql);
    long wanted = NUM2LONG(place) - 1, longer = 0;
    const uint8_t *start = (const uint8_t *)RSTRING_PTR(sql), *end = start + RSTRING_LEN(sql);
    struct pg_sql parsed;
    pg_sql_analyse(start, end, backslashes, &parsed);
    if (parsed.native) return place;
    struct pg_sql_scan scan;
    const uint8_t *counted = start;
    long here = 0; // characters up to there
    pg_sql_begin(&scan, start, end, backslashes);
    for (enum pg_sql_token token; (token = pg_sql_next(&scan)) != PG_SQL_END;) {
        if (token != PG_SQL_QUESTION && token != PG_SQL_ESCAPED_QUESTION) continue;
        long length = 1;
        here += characters(counted, scan.text.at);
        counted = scan.text.at;
        if (wanted < here + longer) break;
        for (uint32_t number = scan.questions; token == PG_SQL_QUESTION && number; number /= 10)
            length++;
        if (wanted < here + longer + length) return LONG2NUM(here + 1);
        longer += length - characters(scan.text.at, scan.text.at + scan.text.length);
    }
    RB_GC_GUARD(sql);
    return LONG2NUM(wanted - longer + 1);
}

/* @api private link.placeholders(sql) -> Array of [name or nil, offset, length] of each ?, ?? and :name, in bytes. nil
   if the text has the server's own placeholders or does not end. */
static VALUE placeholders(VALUE self, VALUE sql)
{
    bool backslashes = postgresql_link_of(self)->backslashes;
    sql = postgresql_sql_string(sql);
    VALUE found = rb_ary_new();
    const uint8_t *start = (const uint8_t *)RSTRING_PTR(sql);
    struct pg_sql_scan scan;
    pg_sql_begin(&scan, start, start + RSTRING_LEN(sql), backslashes);
    enum pg_sql_token token;
    while ((token = pg_sql_next(&scan)) != PG_SQL_END) {
        if (scan.native || scan.unterminated) return Qnil;
        if (token != PG_SQL_QUESTION && token != PG_SQL_ESCAPED_QUESTION && token != PG_SQL_NAME) continue;
        const char *p = (const char *)scan.text.at;
        long length = (long)scan.text.length;
        VALUE name = token == PG_SQL_NAME ? rb_utf8_str_new(p + 1, length - 1) : Qnil;
        rb_ary_push(found, rb_ary_new_from_args(3, name, LONG2NUM(scan.text.at - start), LONG2NUM(length)));
    }
    RB_GC_GUARD(sql);
    return found;
}

void postgresql_sql_init(void)
{
    for (int i = 0; i < KINDS; i++)
        kind_symbols[i] = ID2SYM(rb_intern(kind_names[i]));
    VALUE link = postgresql_cLink;
    rb_define_method(link, "kind_of", kind_of, 1);
    rb_define_method(link, "statements", statements, 1);
    rb_define_method(link, "select?", select_p, 1);
    rb_define_method(link, "position", position, 2);
    rb_define_method(link, "placeholders", placeholders, 1);
}
