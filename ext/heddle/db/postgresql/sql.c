// What the text of a statement says, before it is sent: its kind, how many statements it has, and where its parameters
// are.
#include "db/postgresql/protocol.h"

#include "wire/postgresql/sql_calls.h"
#include "wire/postgresql/sql_placeholders.h"

#include <string.h>

// In UTF-8 or binary; the caller's own String if it is that.
static VALUE sql_text(VALUE sql)
{
    VALUE string = rb_check_string_type(sql);
    if (NIL_P(string)) rb_raise(rb_eTypeError, "SQL must be a String, not %+" PRIsVALUE, sql);
    int encoding = rb_enc_get_index(string);
    if (encoding != rb_utf8_encindex() && encoding != rb_ascii8bit_encindex() &&
        rb_enc_str_coderange(string) != ENC_CODERANGE_7BIT)
        string = rb_str_encode(string, rb_enc_from_encoding(rb_utf8_encoding()), 0, Qnil);
    return string;
}

VALUE postgresql_sql_string(VALUE sql)
{
    return rb_str_new_frozen(sql_text(sql));
}

// What a text says, which sql_text has returned.
static const struct pg_sql *look_at(struct postgresql_protocol *protocol, VALUE text)
{
    enum { LONGEST_KEPT = 16 << 10 };
    struct pg_span span = postgresql_span_of(text);
    struct pg_buffer *looked = &protocol->looked;
    if (span.length && looked->length == span.length && protocol->looked_backslashes == protocol->backslashes &&
        memcmp(looked->at, span.at, span.length) == 0)
        return &protocol->look;
    looked->length = 0;
    pg_sql_analyse(span.at, span.at + span.length, protocol->backslashes, &protocol->look);
    protocol->looked_backslashes = protocol->backslashes;
    if (span.length <= LONGEST_KEPT) postgresql_check(pg_put_bytes(looked, span.at, span.length));
    RB_GC_GUARD(text);
    return &protocol->look;
}

VALUE postgresql_native_sql(struct postgresql_protocol *protocol, VALUE sql, uint32_t *parameters)
{
    sql = sql_text(sql);
    const struct pg_sql *look = look_at(protocol, sql);
    *parameters = look->highest;
    if (protocol->textual || look->native || !(look->questions || look->escapes)) return sql;
    size_t begin = protocol->request.length;
    struct pg_span span = postgresql_span_of(sql);
    uint64_t count = (uint64_t)look->questions + look->escapes;
    if (count <= PG_SQL_PLACES && span.length <= PG_MESSAGE_MOST) {
        postgresql_check(pg_sql_put_numbers(&protocol->request, span.at, span.at + span.length, look->places,
                                            (uint32_t)count, parameters));
    } else {
        struct pg_sql_rewriting rewriting = {.backslashes = protocol->backslashes};
        postgresql_check(pg_sql_rewrite(&protocol->request, span.at, span.at + span.length, &rewriting));
        *parameters = rewriting.parameters;
    }
    VALUE text = rb_utf8_str_new((const char *)protocol->request.at + begin, (long)(protocol->request.length - begin));
    protocol->request.length = begin;
    RB_GC_GUARD(sql);
    return text;
}

// ---- kinds

// Of a function: nil for U&"…" and for one that the server shortens.
static VALUE name_of(struct pg_span name)
{
    enum { LONGEST = 63 };
    bool quoted = *name.at == '"';
    if (name.at[name.length - 1] == '"' && !quoted) return Qnil;
    if (quoted) name = (struct pg_span){name.at + 1, name.length - 2};
    if (name.length > LONGEST) return Qnil;
    uint8_t bytes[LONGEST];
    size_t length = 0;
    for (size_t i = 0; i < name.length; i++) {
        uint8_t byte = name.at[i];
        if (!quoted && byte >= 'A' && byte <= 'Z') byte |= 0x20;
        bytes[length++] = byte;
        if (quoted && byte == '"') i++; // it is doubled
    }
    return rb_utf8_str_new((const char *)bytes, (long)length);
}

// What Heddle::DB::Driver#kind returns. Of several statements the one that matters most comes last here.
enum kind { PLAIN, CALLING, SESSION, OTHER, COMMIT, COPY_OUT, COPY_IN, KINDS };
static const char *const kind_names[KINDS] = {"plain", "calling", "session", "other", "commit", "copy_out", "copy_in"};
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
    case PG_SQL_MOVE: return PLAIN;
    case PG_SQL_BEGIN:
    case PG_SQL_COMMIT:
    case PG_SQL_ROLLBACK:
    case PG_SQL_PREPARE_TRANSACTION: return COMMIT;
    case PG_SQL_DISCARD:
    case PG_SQL_DEALLOCATE: return OTHER;
    case PG_SQL_COPY_IN: return COPY_IN;
    case PG_SQL_COPY_OUT: return COPY_OUT;
    default: return SESSION;
    }
}

static enum kind kind_in(const struct pg_sql *look)
{
    enum kind kind = look->session || look->statements != 1 ? SESSION : look->calls ? CALLING : PLAIN;
    uint64_t kinds = look->kinds;
    for (int bit = 0; kinds; bit++, kinds >>= 1) {
        if (!(kinds & 1)) continue;
        enum kind one = kind_for((enum pg_sql_kind)bit);
        if (kind < one) kind = one;
    }
    return kind;
}

bool postgresql_is_plain(VALUE self, VALUE sql)
{
    int encoding = rb_enc_get_index(sql);
    if (encoding != rb_utf8_encindex() && encoding != rb_ascii8bit_encindex()) return false;
    return kind_in(look_at(postgresql_protocol_of(self), sql)) == PLAIN;
}

bool postgresql_takes_statement_timeout(struct postgresql_protocol *protocol, VALUE sql)
{
    static const uint64_t rows = UINT64_C(1) << PG_SQL_SELECT | UINT64_C(1) << PG_SQL_INSERT |
                                 UINT64_C(1) << PG_SQL_UPDATE | UINT64_C(1) << PG_SQL_DELETE |
                                 UINT64_C(1) << PG_SQL_MERGE | UINT64_C(1) << PG_SQL_FETCH |
                                 UINT64_C(1) << PG_SQL_MOVE | UINT64_C(1) << PG_SQL_EXPLAIN;
    if (!protocol->timeout.enabled) return false;
    const struct pg_sql *look = look_at(protocol, sql_text(sql));
    return look->statements == 1 && !(look->kinds & ~rows);
}

/* @api private protocol.kind_of(sql) -> :plain, :calling, :session, :commit, :other, :copy_in or :copy_out. Several
 * statements are at least :session: they cannot be prepared. */
static VALUE postgresql_kind_of(VALUE self, VALUE sql)
{
    return kind_symbols[kind_in(look_at(postgresql_protocol_of(self), sql_text(sql)))];
}

/* @api private protocol.sets_config?(sql) -> true or false. Whether it calls set_config, but for a transaction */
static VALUE sets_config_p(VALUE self, VALUE sql)
{
    return look_at(postgresql_protocol_of(self), sql_text(sql))->session ? Qtrue : Qfalse;
}

/* @api private protocol.calls(sql) -> Array of String. The names of the functions that a statement calls and that are
 * not known to be harmless, as the catalogue has them; nil for one that only the server can read. */
static VALUE calls(VALUE self, VALUE sql)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    VALUE names = rb_ary_new();
    sql = sql_text(sql);
    if (!look_at(protocol, sql)->calls) return names;
    sql = rb_str_new_frozen(sql);
    const uint8_t *start = (const uint8_t *)RSTRING_PTR(sql);
    struct pg_sql_scan scan;
    struct pg_sql_calls seen = {0};
    pg_sql_begin(&scan, start, start + RSTRING_LEN(sql), protocol->backslashes);
    while (pg_sql_next(&scan) != PG_SQL_END)
        if (pg_sql_note_call(&seen, &scan)) rb_ary_push(names, name_of(seen.name));
    RB_GC_GUARD(sql);
    return names;
}

VALUE postgresql_undone(struct postgresql_protocol *protocol, VALUE sql)
{
    if (!protocol->rolled_back) return Qnil;
    const struct pg_sql *look = look_at(protocol, sql_text(sql));
    bool commits = look->kind == PG_SQL_COMMIT || look->kind == PG_SQL_PREPARE_TRANSACTION;
    if (!commits || look->statements != 1) return Qnil;
    VALUE message = rb_utf8_str_new_cstr("the server rolled the transaction back: a statement in it had failed");
    return rb_class_new_instance(1, &message, rb_path2class("Heddle::DB::TransactionError"));
}

/* @api private protocol.rolled_back(sql) -> TransactionError or nil. An error if the statement, which was run last and
 * succeeded, was a commit that the server answered with ROLLBACK, as it does at the end of a failed transaction. */
static VALUE rolled_back(VALUE self, VALUE sql)
{
    return postgresql_undone(postgresql_protocol_of(self), sql);
}

/* @api private protocol.statements(sql) -> Integer */
static VALUE statements(VALUE self, VALUE sql)
{
    return UINT2NUM(look_at(postgresql_protocol_of(self), sql_text(sql))->statements);
}

/* @api private protocol.select?(sql) -> true or false: whether a cursor can be declared for it */
static VALUE select_p(VALUE self, VALUE sql)
{
    const struct pg_sql *look = look_at(postgresql_protocol_of(self), sql_text(sql));
    return look->kind == PG_SQL_SELECT && look->statements == 1 ? Qtrue : Qfalse;
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

/* @api private protocol.position(sql, position) -> Integer. The position, in characters from 1, in the text that the
 * server got, as one in `sql`: a ? became $1, ?? became ?. */
static VALUE position(VALUE self, VALUE sql, VALUE place)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    StringValue(sql);
    long wanted = NUM2LONG(place) - 1, longer = 0;
    const uint8_t *start = (const uint8_t *)RSTRING_PTR(sql), *end = start + RSTRING_LEN(sql);
    if (look_at(protocol, sql)->native) return place;
    struct pg_sql_scan scan;
    const uint8_t *counted = start;
    long here = 0; // characters up to there
    pg_sql_begin(&scan, start, end, protocol->backslashes);
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

/* @api private protocol.placeholders(sql) -> Array of [name or nil, offset, length] of each ?, ?? and :name, in bytes.
 * nil if the text has the server's own placeholders or does not end. */
static VALUE placeholders(VALUE self, VALUE sql)
{
    bool backslashes = postgresql_protocol_of(self)->backslashes;
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

void postgresql_sql_define(void)
{
    for (int i = 0; i < KINDS; i++)
        kind_symbols[i] = ID2SYM(rb_intern(kind_names[i]));
    VALUE protocol = postgresql_cProtocol;
    rb_define_method(protocol, "kind_of", postgresql_kind_of, 1);
    rb_define_method(protocol, "calls", calls, 1);
    rb_define_method(protocol, "sets_config?", sets_config_p, 1);
    rb_define_method(protocol, "statements", statements, 1);
    rb_define_method(protocol, "rolled_back", rolled_back, 1);
    rb_define_method(protocol, "select?", select_p, 1);
    rb_define_method(protocol, "position", position, 2);
    rb_define_method(protocol, "placeholders", placeholders, 1);
}
