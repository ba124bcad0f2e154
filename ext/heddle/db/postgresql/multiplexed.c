// Statements of several tasks in flight on one connection (db/multiplexer.c). Each is a statement without a name and
// has a Sync of its own: an error ends it alone. Its request is written at once, between two switches of tasks; the
// answers come in the order of the requests.
#include "db/postgresql/commands.h"

static bool may_share(VALUE self, VALUE sql, VALUE arguments)
{
    return RB_TYPE_P(sql, T_STRING) && postgresql_is_plain(self, sql) &&
           !postgresql_arguments_doubtful(self, arguments);
}

static bool is_shareable(VALUE self)
{
    return postgresql_protocol_of(self)->transaction == PG_IDLE;
}

struct multiplexed_request {
    struct postgresql_protocol *protocol;
    VALUE sql;
    const struct postgresql_arguments *ready;
    uint64_t begins;
};

static VALUE multiplexed_put(VALUE argument)
{
    struct multiplexed_request *request = (struct multiplexed_request *)argument;
    struct postgresql_protocol *protocol = request->protocol;
    struct stream *stream = stream_of(protocol->base.stream);
    postgresql_put_statement_timeout(protocol, true); // of the kind :plain, outside of any transaction block
    postgresql_put_ready(protocol, request->sql, request->ready, Qnil, 0);
    postgresql_check(pg_put_sync(&protocol->request));
    // Not postgresql_send: pending closes may be so many that they are sent at once, which may wait.
    stream_append(stream, protocol->request.at, protocol->request.length);
    request->begins = stream_written(stream) - protocol->request.length;
    postgresql_requested(protocol, stream, 1);
    return Qnil;
}

// The request's buffer is empty whenever other code runs.
static VALUE multiplexed_put_end(VALUE argument)
{
    ((struct multiplexed_request *)argument)->protocol->request.length = 0;
    return Qnil;
}

static uint32_t ask(VALUE self, VALUE sql, VALUE arguments, const bool *refused, uint64_t *begins)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    struct postgresql_arguments ready;
    db_protocol_check_process(&protocol->base);
    sql = postgresql_make_ready(protocol, sql, arguments, &ready);
    if (*refused) return 0;
    struct multiplexed_request request = {.protocol = protocol, .sql = sql, .ready = &ready};
    rb_ensure(multiplexed_put, (VALUE)&request, multiplexed_put_end, (VALUE)&request);
    *begins = request.begins;
    RB_GC_GUARD(self);
    RB_GC_GUARD(sql);
    RB_GC_GUARD(ready.holder);
    return 1;
}

// One result or an error, and nothing else: what a server sends beyond that would be taken for another task's answer.
static VALUE answer_body(struct db_exchange *exchange)
{
    VALUE error, results = postgresql_read_results(exchange->protocol, 1, &error);
    VALUE answer = NIL_P(error) ? rb_ary_entry(results, 0) : error;
    RB_GC_GUARD(results);
    return answer;
}

static VALUE answer(VALUE self, VALUE sql)
{
    (void)sql;
    return postgresql_exchange_with(self, answer_body, Qnil, Qnil);
}

static VALUE drop_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    stream_set_resumable(stream_of(protocol->base.stream), true);
    return postgresql_drop_reply(protocol);
}

static void drop(VALUE self)
{
    postgresql_exchange_with(self, drop_body, Qnil, Qnil);
}

static VALUE unsettled(VALUE self)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    if (NIL_P(protocol->unknown_types) && NIL_P(protocol->waiting)) return Qundef;
    VALUE taken = rb_ary_new_from_args(3, protocol->unknown_types, protocol->waiting, protocol->wanted_texts);
    protocol->unknown_types = protocol->waiting = protocol->wanted_texts = Qnil;
    return taken;
}

static void settle(VALUE self, VALUE taken, deadline_t until)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    protocol->unknown_types = RARRAY_AREF(taken, 0);
    protocol->waiting = RARRAY_AREF(taken, 1);
    protocol->wanted_texts = RARRAY_AREF(taken, 2);
    postgresql_settle(self, until);
    RB_GC_GUARD(taken);
}

void postgresql_multiplexed_define(void)
{
    postgresql_operations.may_share = may_share;
    postgresql_operations.is_shareable = is_shareable;
    postgresql_operations.ask = ask;
    postgresql_operations.answer = answer;
    postgresql_operations.drop = drop;
    postgresql_operations.unsettled = unsettled;
    postgresql_operations.settle = settle;
}
