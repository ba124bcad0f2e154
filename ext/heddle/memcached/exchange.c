#include "memcached/connection.h"

#include "loop/context.h"
#include "os/fork.h"
#include "protect.h"
#include "scope/deadline_scope.h"

#include <string.h>

enum {
    PIECE = 64 << 10,  // of a large value, while others wait behind it
    RESERVED = 4 << 20 // memory for announced bytes that have not arrived
};

static struct exchange *exchange_of(struct stream_turn *turn)
{
    return (struct exchange *)((char *)turn - offsetof(struct exchange, turn));
}

// ---- asking

static void ask(struct exchange *exchange)
{
    struct memcached_connection *connection = exchange->connection;
    struct memcached_server *server = connection->server;
    VALUE object = memcached_connection_object(connection);
    struct stream *stream = connection->stream;
    uint64_t begins = stream_written(stream);
    exchange->request.opaque = ++server->opaque;
    if (!connection->loop) stream_bound(stream, exchange->until); // a large value may wait for the socket
    memcached_ask(stream, object, &exchange->request, exchange->key, exchange->value, &exchange->writing);
    stream_line_ask(&connection->line, &exchange->turn, stream, begins);
    exchange->writing = false;
    exchange->lease.had = true;
    if (connection->loop && server->crowded && resource_pool_room(&server->pool) <= 0)
        stream_line_gather(&connection->line, &exchange->turn);
    RB_GC_GUARD(object);
}

// Raises IOError once the connection is closed.
static void await_turn(struct exchange *exchange)
{
    struct memcached_connection *connection = exchange->connection;
    struct stream_turn *turn = &exchange->turn;
    VALUE object = memcached_connection_object(connection);
    for (;;) {
        if (exchange->forks != fork_count())
            rb_raise(rb_eIOError, "this process was forked during an operation, whose connection is the parent's");
        if (turn->answered || connection->line.turns.first == turn) break;
        stream_line_send(&connection->line, stream_of(object));
        stream_check_late(connection->stream, exchange->until);
        stream_turn_sleep(turn, object, exchange->until);
    }
    RB_GC_GUARD(object);
}

// ---- reading

// In pieces, so that whoever reads next knows how much is left if the reader is interrupted.
static void skip_rest(struct memcached_connection *connection)
{
    while (connection->rest) {
        size_t piece = connection->rest < PIECE ? connection->rest : PIECE;
        stream_need(connection->stream, piece);
        stream_consume(connection->stream, piece);
        connection->rest -= piece;
    }
}

static VALUE take_in_pieces(struct memcached_connection *connection, const struct memcached_reply *reply)
{
    struct stream *stream = connection->stream;
    VALUE value = rb_str_buf_new(reply->value_length < RESERVED ? (long)reply->value_length : RESERVED);
    stream_consume(stream, reply->length);
    connection->rest = reply->value_length + 2;
    while (connection->rest > 2) {
        size_t piece = connection->rest - 2 < PIECE ? connection->rest - 2 : PIECE;
        const uint8_t *bytes = stream_need(stream, piece);
        rb_str_cat(value, (const char *)bytes, (long)piece);
        stream_consume(stream, piece);
        connection->rest -= piece;
    }
    memcached_check_end(stream, stream_need(stream, 2));
    skip_rest(connection);
    return value;
}

// A value that has not arrived yet goes straight into its String, unless others wait behind it: an interruption may
// cost only this exchange its reply.
static VALUE take_value(struct memcached_connection *connection, const struct memcached_reply *reply)
{
    size_t there, whole = reply->value_length + 2;
    stream_buffered(connection->stream, &there);
    if (reply->status == MEMCACHED_VA && there < reply->length + whole) {
        if (connection->places == 1) {
            connection->full = true;
        } else if (whole > PIECE) {
            return take_in_pieces(connection, reply);
        } else {
            stream_need(connection->stream, reply->length + whole);
        }
    }
    return memcached_take_value(connection->stream, reply);
}

// Reads a reply that was given up.
static void drop_reply(struct memcached_connection *connection)
{
    struct stream *stream = connection->stream;
    if (!connection->rest) {
        struct memcached_reply reply;
        bool in_sync = true;
        memcached_read_reply(stream, &reply);
        memcached_reply_error(connection->server, &reply, &in_sync);
        if (!in_sync) memcached_protocol_error(stream, "a reply to another kind of request");
        if (reply.status == MEMCACHED_VA) connection->rest = reply.value_length + 2;
        stream_consume(stream, reply.length);
    }
    skip_rest(connection);
    stream_line_answer(&connection->line, NULL, stream);
}

// Gives the next in line its reply, if all of it has arrived. What is wrong with it is for its own task to say.
static bool hand_over(struct memcached_connection *connection)
{
    struct stream *stream = connection->stream;
    struct stream_line *line = &connection->line;
    struct stream_turn *turn = line->turns.first;
    size_t there;
    if (!turn || turn->number != stream_line_next(line)) return false;
    struct exchange *exchange = exchange_of(turn);
    struct memcached_reply reply;
    const uint8_t *bytes = stream_buffered(stream, &there);
    const char *what;
    if (!there || memcached_reply(bytes, bytes + there, &reply) != MEMCACHED_DONE) return false;
    if (reply.status >= MEMCACHED_ERROR || !memcached_reply_fits(&exchange->request, &reply, &what)) return false;
    bool value = reply.status == MEMCACHED_VA;
    if (value && there - reply.length < reply.value_length + 2) return false;
    size_t whole = reply.length + (value ? reply.value_length + 2 : 0);
    if (value && memcmp(bytes + whole - 2, "\r\n", 2)) return false;
    if (line->asked == turn->number && there > whole) return false;
    exchange->bytes = memcached_take_value(stream, &reply);
    exchange->reply = reply;
    stream_line_answer(line, turn, stream);
    return true;
}

static void read_reply(struct exchange *exchange)
{
    struct memcached_connection *connection = exchange->connection;
    struct stream *stream = connection->stream;
    struct stream_line *line = &connection->line;
    struct memcached_reply *reply = &exchange->reply;
    bool in_sync = true;
    VALUE object = memcached_connection_object(connection);
    stream_bound(stream, exchange->until);
    while (stream_line_next(line) != exchange->turn.number)
        drop_reply(connection);
    memcached_read_reply(stream, reply);
    exchange->error = memcached_reply_error(connection->server, reply, &in_sync);
    if (NIL_P(exchange->error)) memcached_check_reply(stream, &exchange->request, reply);
    exchange->bytes = take_value(connection, reply);
    stream_line_answer(line, &exchange->turn, stream);
    connection->proven = true;
    if (!in_sync) {
        connection->failed = true; // by this request, not by the server
        stream_poison(stream, "the server did not understand a request");
    } else if (line->asked == line->answered) {
        size_t more;
        stream_buffered(stream, &more);
        if (more) memcached_protocol_error(stream, "more bytes than were requested");
    } else {
        while (hand_over(connection)) {
        }
    }
    RB_GC_GUARD(object);
}

static VALUE attempt(VALUE argument)
{
    struct exchange *exchange = (struct exchange *)argument;
    memcached_connection_enter(exchange);
    ask(exchange);
    await_turn(exchange);
    if (!exchange->turn.answered) read_reply(exchange);
    memcached_connection_leave(exchange);
    return Qnil;
}

// ---- the end of an attempt

static VALUE poison(VALUE connection)
{
    stream_poison(((struct memcached_connection *)connection)->stream, "a request was written in part only");
    return Qnil;
}

static VALUE leave(VALUE argument)
{
    struct exchange *exchange = (struct exchange *)argument;
    memcached_connection_leave(exchange);
    memcached_lease_end(&exchange->lease, false); // of one that has not opened its connection
    return Qnil;
}

// What the failure was: whether the request was sent, whether the exchange was interrupted, and whether another one has
// reported it.
static void note_failure(struct exchange *exchange, int *state)
{
    struct memcached_connection *connection = exchange->connection;
    exchange->interrupted = !connection->open && memcached_lease_interrupted(&exchange->lease);
    if (!connection->open) return;
    exchange->sent =
        exchange->writing || (exchange->turn.asked && stream_sent(connection->stream) > exchange->turn.begins);
    exchange->interrupted = stream_was_interrupted(memcached_connection_object(connection));
    if (memcached_connection_lost(connection)) {
        exchange->known = connection->failed;
        connection->failed = true;
    } else {
        exchange->interrupted = true;
    }
    if (exchange->writing) protect_next(poison, (VALUE)connection, state);
}

// However it has failed.
static void end_attempt(struct exchange *exchange, int *state)
{
    bool current = exchange->connection && exchange->forks == fork_count();
    if (current) note_failure(exchange, state);
    protect_next(leave, (VALUE)exchange, state);
}

static bool memcached_is_a(VALUE error, VALUE klass)
{
    return RTEST(rb_obj_is_kind_of(error, klass));
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

// A large value of a request may wait for the socket, so nobody else can write meanwhile.
static struct loop *loop_that_shares(const struct exchange *exchange)
{
    bool large = !NIL_P(exchange->value) && RSTRING_LEN(exchange->value) >= MEMCACHED_UNCOPIED;
    return large ? NULL : context_of_fiber().loop;
}

void memcached_exchange_run(struct exchange *exchange)
{
    exchange->until = deadline_after(deadline_now(), exchange->client->span);
    exchange->server = memcached_route(exchange->client, exchange->self, exchange->key);
    for (int count = 1;; count++) {
        exchange->writing = exchange->sent = exchange->interrupted = exchange->known = false;
        exchange->bytes = exchange->error = Qnil;
        exchange->connection = NULL;
        exchange->loop = loop_that_shares(exchange);
        exchange->lease = memcached_lease_of(memcached_server_of(exchange->server));
        exchange->lease.limit = exchange->until;
        VALUE before = rb_errinfo();
        int state = 0;
        rb_protect(attempt, (VALUE)exchange, &state);
        if (!state) break;
        end_attempt(exchange, &state);
        VALUE error = rb_errinfo();
        if (!memcached_is_failure(error) || !exchange->lease.had ||
            memcached_failed_by_caller(&exchange->lease, exchange->interrupted, error)) {
            memcached_abandoned(memcached_lease_server(&exchange->lease));
            rb_jump_tag(state);
        }
        bool again = memcached_in_time(error, exchange->until) && count < MEMCACHED_ATTEMPTS &&
                     (exchange->again || !exchange->sent);
        if (exchange->known && !again) rb_jump_tag(state);
        rb_set_errinfo(before);
        exchange->server = exchange->known
                               ? memcached_route(exchange->client, exchange->self, exchange->key)
                               : memcached_recover(exchange->self, exchange->server, error, exchange->key, again);
    }
    if (memcached_lease_server(&exchange->lease)->troubled) rb_funcall(exchange->server, rb_intern("recovered"), 0);
    if (!NIL_P(exchange->error)) rb_exc_raise(exchange->error);
}
