// Heddle::DB::MySQL::Protocol and the text of statements: its encoding, its kind, its parameters.
#include "db/mysql/protocol.h"

#include "wire/mysql/sql.h"

static VALUE sql_string(VALUE sql)
{
    VALUE string = rb_check_string_type(sql);
    if (NIL_P(string)) rb_raise(rb_eTypeError, "SQL must be a String, not %+" PRIsVALUE, sql);
    return string;
}

VALUE mysql_sql_text(struct mysql_protocol *protocol, VALUE sql)
{
    sql = sql_string(sql);
    rb_encoding *encoding = rb_enc_get(sql);
    if (protocol->encoding == rb_ascii8bit_encoding()) return rb_str_new_frozen(sql);
    if (encoding == protocol->encoding || rb_enc_str_coderange(sql) == ENC_CODERANGE_7BIT)
        return rb_str_new_frozen(sql);
    if (encoding == rb_ascii8bit_encoding()) return rb_str_new_frozen(sql);
    return rb_str_encode(sql, rb_enc_from_encoding(protocol->encoding), 0, Qnil);
}

bool mysql_sql_has_parameters(VALUE sql, VALUE arguments)
{
    Check_Type(arguments, T_ARRAY);
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    bool same = mysql_sql_parameters(p, p + RSTRING_LEN(sql)) == RARRAY_LEN(arguments);
    RB_GC_GUARD(sql);
    return same;
}

bool mysql_sql_looks_back(VALUE sql)
{
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    bool looks = mysql_sql_refers_back(p, p + RSTRING_LEN(sql));
    RB_GC_GUARD(sql);
    return looks;
}

bool mysql_sql_is_write(VALUE sql)
{
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    bool writes = mysql_sql_writes(p, p + RSTRING_LEN(sql));
    RB_GC_GUARD(sql);
    return writes;
}

/* @api private Protocol.way_of(sql) -> :prepared, :text or :diagnostics. How a statement without values is sent. */
static VALUE way_of(VALUE klass, VALUE sql)
{
    (void)klass;
    sql = sql_string(sql);
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    enum mysql_sql_way way = mysql_sql_way(p, p + RSTRING_LEN(sql));
    RB_GC_GUARD(sql);
    return ID2SYM(way == MYSQL_WAY_PREPARED ? rb_intern("prepared")
                  : way == MYSQL_WAY_TEXT   ? rb_intern("text")
                                            : rb_intern("diagnostics"));
}

/* @api private Protocol.leaves_traces?(sql) -> true or false. Whether a statement may change the session. */
static VALUE leaves_traces_p(VALUE klass, VALUE sql)
{
    (void)klass;
    sql = sql_string(sql);
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    bool leaves = mysql_sql_leaves_traces(p, p + RSTRING_LEN(sql));
    RB_GC_GUARD(sql);
    return leaves ? Qtrue : Qfalse;
}

static enum mysql_sql kind_in(VALUE sql)
{
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(sql);
    enum mysql_sql kind = mysql_sql_kind(p, p + RSTRING_LEN(sql));
    RB_GC_GUARD(sql);
    return kind;
}

bool mysql_is_plain(VALUE protocol, VALUE sql)
{
    (void)protocol;
    return kind_in(sql) == MYSQL_SQL_PLAIN;
}

/* @api private Protocol.kind_of(sql) -> :plain, :session, :commit or :other */
static VALUE mysql_kind_of(VALUE klass, VALUE sql)
{
    (void)klass;
    enum mysql_sql kind = kind_in(sql_string(sql));
    return ID2SYM(kind == MYSQL_SQL_PLAIN     ? rb_intern("plain")
                  : kind == MYSQL_SQL_SESSION ? rb_intern("session")
                  : kind == MYSQL_SQL_COMMIT  ? rb_intern("commit")
                                              : rb_intern("other"));
}

/* @api private Protocol.placeholders(sql) -> Array of [name or nil, offset, length] of each ? and :name, in bytes; nil
 * if that depends on the server. */
static VALUE placeholders(VALUE klass, VALUE sql)
{
    (void)klass;
    sql = sql_string(sql);
    VALUE found = rb_ary_new();
    const uint8_t *start = (const uint8_t *)RSTRING_PTR(sql);
    struct mysql_placeholder_scan scan = {.start = start, .p = start, .end = start + RSTRING_LEN(sql)};
    enum mysql_placeholder kind;
    while ((kind = mysql_sql_placeholder(&scan)) != MYSQL_PLACEHOLDER_NONE) {
        if (kind == MYSQL_PLACEHOLDER_UNKNOWN) return Qnil;
        long length = (long)(scan.p - scan.begin);
        VALUE name = kind == MYSQL_PLACEHOLDER_NAME ? rb_utf8_str_new((const char *)scan.begin + 1, length - 1) : Qnil;
        rb_ary_push(found, rb_ary_new_from_args(3, name, LONG2NUM(scan.begin - start), LONG2NUM(length)));
    }
    RB_GC_GUARD(sql);
    return found;
}

void mysql_sql_define(void)
{
    VALUE protocol = mysql_cProtocol;
    rb_define_singleton_method(protocol, "kind_of", mysql_kind_of, 1);
    rb_define_singleton_method(protocol, "way_of", way_of, 1);
    rb_define_singleton_method(protocol, "leaves_traces?", leaves_traces_p, 1);
    rb_define_singleton_method(protocol, "placeholders", placeholders, 1);
}
