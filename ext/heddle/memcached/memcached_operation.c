#include "memcached/internals.h"

#include "scope/deadline_scope.h"

static VALUE attempt(VALUE argument)
{
    struct operation *operation = (struct operation *)argument;
    lease_begin(&operation->lease, operation->server, operation->until, !operation->again);
    struct memcached_server *server = operation->lease.server;
    VALUE stream_object = operation->lease.stream;
    struct stream *stream = stream_of(stream_object);
    stream_bound(stream, operation->until);
    operation->request.opaque = ++server->opaque;
    stream_expect(stream, 1);
    memcached_ask(stream, stream_object, &operation->request, operation->key, operation->value, &operation->sent);
    struct memcached_reply *reply = &operation->reply;
    memcached_read_reply(stream, reply);
    bool goes_on = true;
    operation->error = memcached_reply_error(server, reply, &goes_on);
    if (NIL_P(operation->error)) memcached_check_reply(stream, &operation->request, reply);
    operation->bytes = memcached_take_value(stream, reply);
    stream_replied(stream, 1);
    size_t more;
    stream_buffered(stream, &more);
    if (more) memcached_nonsense(stream, "more than it was asked for");
    stream_bound(stream, DEADLINE_NEVER);
    operation->sound = goes_on;
    RB_GC_GUARD(stream_object);
    return Qnil;
}

static bool is_a(VALUE error, VALUE klass)
{
    return RTEST(rb_obj_is_kind_of(error, klass));
}

static VALUE end_lease(VALUE argument)
{
    struct operation *operation = (struct operation *)argument;
    if (!operation->sound) operation->interrupted = lease_interrupted(&operation->lease);
    lease_end(&operation->lease, operation->sound);
    return Qnil;
}

// The lease is over, whatever came of it.
static VALUE leased_attempt(VALUE argument)
{
    return rb_ensure(attempt, argument, end_lease, argument);
}

bool memcached_is_failure(VALUE error)
{
    if (SPECIAL_CONST_P(error) || RB_BUILTIN_TYPE(error) == RUBY_T_IMEMO) return false;
    if (is_a(error, rb_eIOError) || is_a(error, rb_eSystemCallError)) return true;
    if (is_a(error, rb_path2class("Timeout::Error")) || is_a(error, rb_path2class("SocketError"))) return true;
    // Loaded with the first stream that speaks TLS.
    return rb_const_defined(rb_cObject, rb_intern("OpenSSL")) && is_a(error, rb_path2class("OpenSSL::SSL::SSLError"));
}

bool memcached_callers_doing(const struct lease *lease, bool interrupted, VALUE error)
{
    // Our own scope, around a connect, raises into waits too.
    if (is_a(error, rb_path2class("Timeout::Error")))
        return deadline_now() < lease->limit || deadline_in_force() < lease->limit;
    return interrupted || deadline_raised(error); // by Timeout.timeout(seconds, error)
}

bool memcached_in_time(VALUE error, deadline_t until)
{
    if (is_a(error, rb_path2class("Timeout::Error")))
        return false; // ours, or somebody else's: it is not for us to go on
    return until == DEADLINE_NEVER || deadline_now() < until;
}

void memcached_operate(struct operation *operation)
{
    operation->until = deadline_after(deadline_now(), operation->client->span);
    operation->server = memcached_route(operation->client, operation->self, operation->key);
    for (int count = 1;; count++) {
        operation->sent = operation->sound = operation->interrupted = false;
        operation->bytes = operation->error = Qnil;
        operation->lease = (struct lease){.stream = Qnil, .server = memcached_server_of(operation->server)};
        VALUE before = rb_errinfo();
        int state = 0;
        rb_protect(leased_attempt, (VALUE)operation, &state);
        if (!state) break;
        VALUE error = rb_errinfo();
        if (!memcached_is_failure(error) || !operation->lease.had ||
            memcached_callers_doing(&operation->lease, operation->interrupted, error)) {
            memcached_abandoned(operation->lease.server);
            rb_jump_tag(state);
        }
        rb_set_errinfo(before);
        bool again = memcached_in_time(error, operation->until) && count < MEMCACHED_ATTEMPTS &&
                     (operation->again || !operation->sent);
        operation->server = memcached_recover(operation->self, operation->server, error, operation->key, again);
    }
    if (memcached_server_of(operation->server)->troubled) rb_funcall(operation->server, rb_intern("recovered"), 0);
    if (!NIL_P(operation->error)) rb_exc_raise(operation->error);
}
