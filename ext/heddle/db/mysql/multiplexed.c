// Statements of several tasks in flight on one connection (db/multiplexer.c), for MariaDB, which prepares and executes
// a statement in one round trip. A request is three commands: prepare; execute what was prepared last; close it. The
// server reads one command after another, so its replies come in the order of the requests. The close makes the next
// request safe (see mysql_request_new), and no statement stays open whose replies nobody reads.
#include "db/mysql/protocol.h"

#include "db/connection.h"

// Bytes of text and values. A server that finds a request too large closes the connection, on which others wait; and
// each request keeps those behind it waiting.
enum { MOST_SHARED = 1 << 20 };

static bool may_share(VALUE self, VALUE sql, VALUE arguments)
{
    if (!RB_TYPE_P(sql, T_STRING) || !mysql_is_plain(self, sql) || mysql_sql_looks_back(sql)) return false;
    long length = RSTRING_LEN(sql);
    for (long i = 0; i < RARRAY_LEN(arguments); i++)
        if (RB_TYPE_P(RARRAY_AREF(arguments, i), T_STRING)) length += RSTRING_LEN(RARRAY_AREF(arguments, i));
    return length <= MOST_SHARED && mysql_sql_has_parameters(sql, arguments);
}

// Without autocommit a statement begins a transaction, which the others would be in. Behind a reset nobody knows what
// the server takes for the statement that was prepared last, until the next one is.
static bool is_shareable(VALUE self)
{
    const struct mysql_protocol *protocol = mysql_protocol_of(self);
    return protocol->direct && (protocol->status & MYSQL_AUTOCOMMIT) && !(protocol->status & MYSQL_IN_TRANSACTION) &&
           !mysql_session_changed(protocol) && (protocol->last || !protocol->last_open);
}

// ---- requests

struct multiplexed_request {
    struct mysql_protocol *protocol;
    VALUE sql, arguments;
    struct mysql_bytes built;
    const bool *refused;
    uint64_t begins;
    uint32_t replies;
};

// The last prepared statement is kept open. Another one takes its place, and is closed. A server without room for that
// one closes the kept statement: whoever runs it next prepares it again, or gets the server's error in a transaction.
static void replace_last(struct multiplexed_request *request)
{
    static const char sql[] = "do 0";
    mysql_request(request->protocol, MYSQL_PREPARE, sql, sizeof(sql) - 1);
    mysql_close_last(request->protocol);
}

static VALUE multiplexed_put(VALUE argument)
{
    struct multiplexed_request *request = (struct multiplexed_request *)argument;
    struct mysql_protocol *protocol = request->protocol;
    VALUE sql = mysql_sql_text(protocol, request->sql);
    mysql_build_execute(protocol, &request->built, MYSQL_LAST_STATEMENT, request->arguments, false);
    if (*request->refused) return Qnil;
    db_protocol_check_process(&protocol->base);
    request->begins = stream_written(stream_of(protocol->base.stream));
    if (protocol->last_open) replace_last(request);
    mysql_request_new(protocol, sql, &request->built);
    mysql_close_last(protocol);
    request->replies = 2;
    RB_GC_GUARD(sql);
    return Qnil;
}

static VALUE multiplexed_put_end(VALUE argument)
{
    struct multiplexed_request *request = (struct multiplexed_request *)argument;
    struct mysql_bytes *kept = &request->protocol->request;
    if (kept->at) {
        xfree(request->built.at);
    } else {
        *kept = request->built;
    }
    return Qnil;
}

static uint32_t ask(VALUE self, VALUE sql, VALUE arguments, const bool *refused, uint64_t *begins)
{
    struct mysql_protocol *protocol = mysql_protocol_of(self);
    struct multiplexed_request request = {
        .protocol = protocol, .sql = sql, .arguments = arguments, .built = protocol->request, .refused = refused};
    protocol->request = (struct mysql_bytes){0}; // Ruby code that makes the values may ask, too
    rb_ensure(multiplexed_put, (VALUE)&request, multiplexed_put_end, (VALUE)&request);
    *begins = request.begins;
    RB_GC_GUARD(self);
    return request.replies;
}

// ---- replies

static VALUE answer_body(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    stream_set_resumable(stream_of(protocol->base.stream), true);
    VALUE result = mysql_read_new(protocol, exchange->arguments[0], false);
    protocol->refused = Qnil;
    return mysql_wants_room(result) ? Qundef : result;
}

static VALUE answer(VALUE self, VALUE sql)
{
    return mysql_exchange_with(self, answer_body, sql, Qnil);
}

static VALUE drop_body(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    stream_set_resumable(stream_of(protocol->base.stream), true);
    mysql_drop_reply(protocol);
    return Qnil;
}

static void drop(VALUE self)
{
    mysql_exchange_with(self, drop_body, Qnil, Qnil);
}

void mysql_multiplexed_define(void)
{
    mysql_operations.may_share = may_share;
    mysql_operations.is_shareable = is_shareable;
    mysql_operations.ask = ask;
    mysql_operations.answer = answer;
    mysql_operations.drop = drop;
}
