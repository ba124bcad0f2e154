#include "memcached/memcached.h"

#include "scope/deadline_scope.h"

static VALUE attempt(VALUE argument)
{
    struct exchange *exchange = (struct exchange *)argument;
    memcached_lease_begin(&exchange->lease, exchange->until, !exchange->again);
    struct memcached_server *server = memcached_lease_server(&exchange->lease);
    VALUE stream_object = memcached_lease_stream(&exchange->lease);
    struct stream *stream = stream_of(stream_object);
    stream_bound(stream, exchange->until);
    exchange->request.opaque = ++server->opaque;
    stream_expect(stream, 1);
    memcached_ask(stream, stream_object, &exchange->request, exchange->key, exchange->value, &exchange->sent);
    struct memcached_reply *reply = &exchange->reply;
    memcached_read_reply(stream, reply);
    bool in_sync = true;
    exchange->error = memcached_reply_error(server, reply, &in_sync);
    if (NIL_P(exchange->error)) memcached_check_reply(stream, &exchange->request, reply);
    exchange->bytes = memcached_take_value(stream, reply);
    stream_replied(stream, 1);
    size_t more;
    stream_buffered(stream, &more);
    if (more) memcached_protocol_error(stream, "more bytes than were requested");
    stream_bound(stream, DEADLINE_NEVER);
    exchange->in_sync = in_sync;
    RB_GC_GUARD(stream_object);
    return Qnil;
}

static bool memcached_is_a(VALUE error, VALUE klass)
{
    return RTEST(rb_obj_is_kind_of(error, klass));
}

static VALUE end_lease(VALUE argument)
{
    struct exchange *exchange = (struct exchange *)argument;
    if (!exchange->in_sync) exchange->interrupted = memcached_lease_interrupted(&exchange->lease);
    memcached_lease_end(&exchange->lease, exchange->in_sync);
    return Qnil;
}

// Ends the lease in any case.
static VALUE leased_attempt(VALUE argument)
{
    return rb_ensure(attempt, argument, end_lease, argument);
}

bool memcached_is_failure(VALUE error)
{
    if (SPECIAL_CONST_P(error) || RB_BUILTIN_TYPE(error) == RUBY_T_IMEMO) return false;
    if (memcached_is_a(error, rb_eIOError) || memcached_is_a(error, rb_eSystemCallError)) return true;
    if (memcached_is_a(error, rb_path2class("Timeout::Error")) || memcached_is_a(error, rb_path2class("SocketError")))
        return true;
    // Loaded with the first stream that uses TLS.
    return rb_const_defined(rb_cObject, rb_intern("OpenSSL")) &&
           memcached_is_a(error, rb_path2class("OpenSSL::SSL::SSLError"));
}

/* @api private Heddle::Memcached::Failure === error */
static VALUE failure_p(VALUE self, VALUE error)
{
    (void)self;
    return memcached_is_failure(error) ? Qtrue : Qfalse;
}

void memcached_failure_define(VALUE klass)
{
    VALUE failure = rb_define_module_under(klass, "Failure");
    rb_define_singleton_method(failure, "===", failure_p, 1);
}

bool memcached_failed_by_caller(const struct lease *lease, bool interrupted, VALUE error)
{
    // Our own deadline around a connect raises into waits, too.
    if (memcached_is_a(error, rb_path2class("Timeout::Error")))
        return deadline_now() < lease->limit || deadline_in_force() < lease->limit;
    return interrupted || deadline_raised(error); // by Timeout.timeout(seconds, error)
}

bool memcached_in_time(VALUE error, deadline_t until)
{
    if (memcached_is_a(error, rb_path2class("Timeout::Error"))) return false; // the time is over, ours or the caller's
    return until == DEADLINE_NEVER || deadline_now() < until;
}

void memcached_exchange_run(struct exchange *exchange)
{
    exchange->until = deadline_after(deadline_now(), exchange->client->span);
    exchange->server = memcached_route(exchange->client, exchange->self, exchange->key);
    for (int count = 1;; count++) {
        exchange->sent = exchange->in_sync = exchange->interrupted = false;
        exchange->bytes = exchange->error = Qnil;
        exchange->lease = memcached_lease_of(memcached_server_of(exchange->server));
        VALUE before = rb_errinfo();
        int state = 0;
        rb_protect(leased_attempt, (VALUE)exchange, &state);
        if (!state) break;
        VALUE error = rb_errinfo();
        if (!memcached_is_failure(error) || !exchange->lease.had ||
            memcached_failed_by_caller(&exchange->lease, exchange->interrupted, error)) {
            memcached_abandoned(memcached_lease_server(&exchange->lease));
            rb_jump_tag(state);
        }
        rb_set_errinfo(before);
        bool again = memcached_in_time(error, exchange->until) && count < MEMCACHED_ATTEMPTS &&
                     (exchange->again || !exchange->sent);
        exchange->server = memcached_recover(exchange->self, exchange->server, error, exchange->key, again);
    }
    if (memcached_server_of(exchange->server)->troubled) rb_funcall(exchange->server, rb_intern("recovered"), 0);
    if (!NIL_P(exchange->error)) rb_exc_raise(exchange->error);
}
