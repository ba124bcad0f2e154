// The C part of lib/heddle/net_http/keep_alive: hidden variables of objects, and checks of a socket that do not change
// it.
#include "net_http/net_http_kept.h"

#include "names/connect_filter.h"
#include "net_http/net_http_methods.h"
#include "os/fork.h"
#include "shims.h"

#include <errno.h>
#include <math.h>
#include <sys/socket.h>
#include <time.h>

// Seconds by which two clocks may drift apart before that counts as a jump.
#define JUMP 1.0

// Without @, which hides them: `instance_variables` and `inspect` do not show them. Marshal does.
static ID iv_connection, iv_choice, iv_implied, iv_foreign, iv_changes, iv_sent;
static ID iv_awaiting, iv_retries, iv_sound, iv_bound, iv_looked, iv_whole, iv_forks, iv_expires_at, iv_offsets,
    iv_named_at; // of a KeepAlive::Connection
static ID iv_max_retries, iv_socket, iv_last_communicated, iv_keep_alive_timeout, iv_body_stream, iv_body_data, iv_rbuf,
    iv_rbuf_offset, iv_io, iv_rbuffer;
static ID id_on_connect, id_positive_p, id_clock_gettime, id_to_io, id_pending;
static VALUE boot_clock;

double net_http_kept_idle;
static bool keeping;           // changed by the main Ractor only
static unsigned forks_of_ruby; // calls of Process._fork, in the parent and in the child

// Library.keeping = seconds that connections may rest, or false
static VALUE set_keeping(VALUE self, VALUE seconds)
{
    (void)self;
    keeping = RTEST(seconds);
    if (keeping) net_http_kept_idle = NUM2DBL(seconds);
    return seconds;
}

// Library.keeps?(http): whether connections of this object's library are kept. Never outside of the main Ractor.
static VALUE keeps_p(VALUE self, VALUE http)
{
    (void)self;
    return keeping && net_http_library_of_http(http) ? Qtrue : Qfalse;
}

// Defines Library.NAME(object) and Library.set_NAME(object, value).
#define VARIABLE(name)                                                  \
    static VALUE name##_of(VALUE self, VALUE object)                    \
    {                                                                   \
        (void)self;                                                     \
        return rb_attr_get(object, iv_##name);                          \
    }                                                                   \
    static VALUE set_##name##_of(VALUE self, VALUE object, VALUE value) \
    {                                                                   \
        (void)self;                                                     \
        return rb_ivar_set(object, iv_##name, value);                   \
    }

VARIABLE(connection) // of a BufferedIO: its KeepAlive::Connection
VARIABLE(choice)     // of a Net::HTTP: its keep_alive, or nil
VARIABLE(implied)    // of a request: the value of its field Connection that the library itself set
VARIABLE(foreign)    // of a Net::HTTP: true once a program has begun a request by itself
VARIABLE(changes)    // of an OpenSSL::X509::Store: how often it was changed
VARIABLE(sent)       // of a stream: true once it was the body of a request

// Noted in the connection: a program may dump its responses.
void net_http_kept_read(VALUE socket, VALUE response)
{
    VALUE connection = keeping ? rb_attr_get(socket, iv_connection) : Qnil;
    if (!NIL_P(connection)) rb_ivar_set(connection, iv_whole, response);
}

bool net_http_kept_whole(VALUE http, VALUE response)
{
    VALUE socket = rb_attr_get(http, iv_socket), connection = NIL_P(socket) ? Qnil : rb_attr_get(socket, iv_connection);
    return !NIL_P(connection) && rb_attr_get(connection, iv_whole) == response;
}

// Library.whole?(http, response): see above.
static VALUE whole_p(VALUE self, VALUE http, VALUE response)
{
    (void)self;
    return net_http_kept_whole(http, response) ? Qtrue : Qfalse;
}

VALUE net_http_kept_connection(VALUE http)
{
    if (keeps_p(Qnil, http) == Qfalse) return Qnil;
    VALUE socket = rb_attr_get(http, iv_socket);
    return NIL_P(socket) ? Qnil : rb_attr_get(socket, iv_connection);
}

// Gives a session its retries back, unless an answer has done so.
static void await_no_more(VALUE connection)
{
    VALUE awaiting = rb_attr_get(connection, iv_awaiting);
    if (!RTEST(awaiting)) return;
    rb_ivar_set(connection, iv_awaiting, Qfalse);
    if (awaiting != Qtrue) rb_ivar_set(awaiting, iv_max_retries, rb_attr_get(connection, iv_retries));
}

void net_http_kept_answered(VALUE socket)
{
    VALUE connection = rb_attr_get(socket, iv_connection);
    if (!NIL_P(connection)) await_no_more(connection);
}

void net_http_kept_begun_elsewhere(VALUE http)
{
    if (keeping) rb_ivar_set(http, iv_foreign, Qtrue);
}

// Library.answered(buffered): the same for the library's own code.
static VALUE answered(VALUE self, VALUE buffered)
{
    (void)self;
    net_http_kept_answered(buffered);
    return Qnil;
}

static bool unread(VALUE buffered)
{
    VALUE rbuf = rb_attr_get(buffered, iv_rbuf), offset = rb_attr_get(buffered, iv_rbuf_offset);
    if (!RB_TYPE_P(rbuf, T_STRING)) return true; // a program's own
    return RSTRING_LEN(rbuf) > (FIXNUM_P(offset) ? FIX2LONG(offset) : 0);
}

// Library.unread?(buffered): whether a BufferedIO holds bytes that nobody has read.
static VALUE unread_p(VALUE self, VALUE buffered)
{
    (void)self;
    return unread(buffered) ? Qtrue : Qfalse;
}

// Looks at a socket without waiting. Consumes nothing. Returns true if it is open and has received nothing, neither
// bytes nor the end; nil if bytes have come over TLS, which may be a session ticket; otherwise false.
static VALUE look(VALUE io)
{
    VALUE socket = RB_TYPE_P(io, T_FILE) ? io : rb_funcall(io, id_to_io, 0);
    int descriptor = RB_TYPE_P(socket, T_FILE) ? shim_open_descriptor(socket) : -1;
    if (descriptor < 0 || rb_io_read_pending(RFILE(socket)->fptr)) return Qfalse;
    if (socket != io) {
        VALUE ahead = rb_attr_get(io, iv_rbuffer);
        if (rb_funcall(io, id_pending, 0) != INT2FIX(0)) return Qfalse;
        if (!NIL_P(ahead) && !(RB_TYPE_P(ahead, T_STRING) && RSTRING_LEN(ahead) == 0)) return Qfalse;
    }
    char byte;
    ssize_t count;
    do {
        count = recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    RB_GC_GUARD(socket);
    if (count > 0 && socket != io) return Qnil;
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Qtrue : Qfalse;
}

// Library.quiet?(io): see above.
static VALUE quiet_p(VALUE self, VALUE io)
{
    (void)self;
    return look(io);
}

static double clock_time(VALUE clock)
{
    struct timespec time;
    if (!rb_method_basic_definition_p(CLASS_OF(rb_mProcess), id_clock_gettime)) // tests replace it
        return NUM2DBL(rb_funcall(rb_mProcess, id_clock_gettime, 1, clock));
    if (clock_gettime((clockid_t)FIX2INT(clock), &time) < 0) rb_sys_fail("clock_gettime");
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double monotonic_time(void)
{
    return clock_time(INT2FIX(CLOCK_MONOTONIC));
}

struct offsets {
    double boot, day;
};

static struct offsets offsets_at(double now)
{
    return (struct offsets){clock_time(boot_clock) - now, clock_time(INT2FIX(CLOCK_REALTIME)) - now};
}

static bool jumped(VALUE before, struct offsets after)
{
    if (!RB_TYPE_P(before, T_ARRAY) || RARRAY_LEN(before) != 2) return true;
    return fabs(after.boot - NUM2DBL(rb_ary_entry(before, 0))) > JUMP ||
           fabs(after.day - NUM2DBL(rb_ary_entry(before, 1))) > JUMP;
}

static VALUE offsets_array(double now)
{
    struct offsets at = offsets_at(now);
    return rb_ary_new_from_args(2, DBL2NUM(at.boot), DBL2NUM(at.day));
}

// Library.jumped?(before, now): see KeepAlive::Clock.
static VALUE jumped_p(VALUE self, VALUE before, VALUE now)
{
    (void)self;
    return jumped(before, offsets_at(NUM2DBL(now))) ? Qtrue : Qfalse;
}

static VALUE all_forks(void)
{
    return UINT2NUM(fork_count() + forks_of_ruby);
}

void net_http_kept_rest(VALUE socket, double until)
{
    VALUE connection = NIL_P(socket) ? Qnil : rb_attr_get(socket, iv_connection);
    if (NIL_P(connection)) return;
    rb_ivar_set(connection, iv_expires_at, DBL2NUM(until));
    rb_ivar_set(connection, iv_whole, Qnil);
    rb_ivar_set(connection, iv_sound, Qtrue);
}

static bool expired(VALUE connection, double now)
{
    VALUE at = rb_attr_get(connection, iv_expires_at);
    return NIL_P(at) || NUM2DBL(at) <= now;
}

// Takes a connection away from its session, unless another thread has done so meanwhile, or has begun a request. Code
// that still has this BufferedIO, a dup of the Net::HTTP for example, finds it closed.
static bool detach(VALUE buffered, VALUE connection, VALUE closed, VALUE offsets)
{
    if (rb_attr_get(buffered, iv_connection) != connection || rb_attr_get(connection, iv_sound) != Qtrue) return false;
    rb_ivar_set(connection, iv_offsets, offsets);
    rb_ivar_set(buffered, iv_connection, Qnil);
    rb_ivar_set(buffered, iv_io, closed);
    return true;
}

// Library.release(http, connection, buffered, closed): takes a connection away from a session that ends, if it may be
// kept: no request is under way, no other process has it, nothing has come since, and neither the program nor its own
// requests forbid it. Returns whether this is so; nil if bytes have come over TLS, see {look}, and the rest holds.
static VALUE release(VALUE self, VALUE http, VALUE connection, VALUE buffered, VALUE closed)
{
    (void)self;
    if (RTEST(rb_attr_get(http, iv_foreign)) || rb_attr_get(http, iv_choice) == Qfalse) return Qfalse;
    if (rb_attr_get(connection, iv_sound) != Qtrue || RTEST(rb_attr_get(connection, iv_bound))) return Qfalse;
    double now = monotonic_time();
    VALUE offsets = offsets_array(now);
    if (rb_attr_get(connection, iv_forks) != all_forks() || expired(connection, now)) return Qfalse;
    VALUE io = rb_attr_get(connection, iv_io);
    if (rb_attr_get(buffered, iv_io) != io || unread(buffered)) return Qfalse;
    VALUE quiet = look(io);
    return quiet == Qtrue && !detach(buffered, connection, closed, offsets) ? Qfalse : quiet;
}

// Library.detach(connection, buffered, closed): the last step of that.
static VALUE detach_from(VALUE self, VALUE connection, VALUE buffered, VALUE closed)
{
    (void)self;
    return detach(buffered, connection, closed, offsets_array(monotonic_time())) ? Qtrue : Qfalse;
}

// Library.attach(http, buffered, connection): begins another session on a connection. Because @last_communicated is not
// nil, the library looks once more whether the server has closed it, before the first request.
static VALUE attach(VALUE self, VALUE http, VALUE buffered, VALUE connection)
{
    (void)self;
    rb_ivar_set(connection, iv_awaiting, Qtrue);
    rb_ivar_set(connection, iv_forks, all_forks()); // a child of fork has closed its copy
    VALUE now = DBL2NUM(monotonic_time());
    rb_ivar_set(http, iv_socket, buffered);
    rb_ivar_set(http, iv_last_communicated, now);
    rb_funcall(http, id_on_connect, 0);
    buffered = rb_attr_get(http, iv_socket); // Heddle::NetHTTP.for exchanges it
    return rb_ivar_set(buffered, iv_connection, connection);
}

static void await_answer(VALUE connection, VALUE http)
{
    rb_ivar_set(connection, iv_retries, rb_attr_get(http, iv_max_retries));
    rb_ivar_set(connection, iv_awaiting, http);
    rb_ivar_set(http, iv_max_retries, INT2FIX(0));
}

// Library.await(connection, http): from here until an answer begins, the library gets no retry of its own.
static VALUE await(VALUE self, VALUE connection, VALUE http)
{
    (void)self;
    await_answer(connection, http);
    return Qnil;
}

void net_http_kept_transported(VALUE connection)
{
    if (!NIL_P(connection) && rb_attr_get(connection, iv_awaiting) != Qtrue) await_no_more(connection);
}

// A request begins: until its exchange has settled, nobody else may have the connection. Nobody else ever may if the
// exchange before has not settled, or if bytes have come that answer nothing: the library would take those for the
// answer to this request, and a later session would get this answer for its own. Returns what {look} tells.
static VALUE begin(VALUE connection, VALUE buffered)
{
    VALUE before = rb_attr_get(connection, iv_sound), quiet = look(rb_attr_get(connection, iv_io));
    bool clear = quiet == Qtrue || (NIL_P(quiet) && NIL_P(before));  // a new connection's session tickets
    if (rb_attr_get(connection, iv_awaiting) == Qtrue) clear = true; // Exchange closes it otherwise
    if (before == Qfalse || unread(buffered) || !clear) rb_ivar_set(connection, iv_bound, Qtrue);
    rb_ivar_set(connection, iv_sound, Qfalse);
    rb_ivar_set(connection, iv_looked, quiet == Qtrue ? Qtrue : Qfalse);
    return quiet;
}

bool net_http_kept_looked(VALUE socket)
{
    VALUE connection = rb_attr_get(socket, iv_connection);
    if (NIL_P(connection) || rb_attr_get(connection, iv_looked) != Qtrue) return false;
    rb_ivar_set(connection, iv_looked, Qfalse);
    return true;
}

// The library need not look again whether the server has closed the connection. False tells of an unfinished request.
static void trust(VALUE http)
{
    if (RTEST(rb_attr_get(http, iv_last_communicated))) rb_ivar_set(http, iv_last_communicated, Qnil);
}

// Library.trust(http)
static VALUE trust_connection(VALUE self, VALUE http)
{
    (void)self;
    trust(http);
    return Qnil;
}

// Library.begins?(http, connection, buffered, request): begins a request. Returns whether it is a usual one, as almost
// all are: there is nothing to note of a stream, the library itself has set no field Connection, and nothing has come
// on a kept connection. If this is a session's first request on a kept connection, {await} was called.
static VALUE begins_p(VALUE self, VALUE http, VALUE connection, VALUE buffered, VALUE request)
{
    (void)self;
    VALUE quiet = begin(connection, buffered);
    if (RTEST(rb_attr_get(request, iv_body_stream)) || RTEST(rb_attr_get(request, iv_body_data)) ||
        RTEST(rb_attr_get(request, iv_implied)))
        return Qfalse;
    if (rb_attr_get(connection, iv_awaiting) != Qtrue) return Qtrue;
    struct net_http_library *library = net_http_library_of_http(http);
    if (quiet != Qtrue || !library || !net_http_library_knows_request(library, request)) return Qfalse;
    trust(http);
    if (net_http_exchange_idempotent(request)) await_answer(connection, http);
    return Qtrue;
}

// Library.fresh?(connection, idle): whether a kept connection may be used again, as it is almost always. Otherwise
// KeepAlive finds out what is to be done.
static VALUE fresh_p(VALUE self, VALUE connection, VALUE idle)
{
    (void)self;
    if (connect_filter_asks()) return Qfalse;
    double now = monotonic_time();
    if (jumped(rb_attr_get(connection, iv_offsets), offsets_at(now)) || expired(connection, now)) return Qfalse;
    if (now - NUM2DBL(rb_attr_get(connection, iv_named_at)) > NUM2DBL(idle)) return Qfalse;
    return look(rb_attr_get(connection, iv_io)) == Qtrue ? Qtrue : Qfalse;
}

// Library.count(counts, name, number): adds the number. Under the GVL, which this does not release.
static VALUE count(VALUE self, VALUE counts, VALUE name, VALUE number)
{
    (void)self;
    rb_hash_aset(counts, name, ULL2NUM(NUM2ULL(rb_hash_lookup(counts, name)) + NUM2ULL(number)));
    return Qnil;
}

// Library.singular?(object): whether an object has methods of its own.
static VALUE singular_p(VALUE self, VALUE object)
{
    (void)self;
    return RB_FL_TEST(CLASS_OF(object), RUBY_FL_SINGLETON) ? Qtrue : Qfalse;
}

static VALUE variables_of(VALUE object, VALUE names, bool flat)
{
    long count = RARRAY_LEN(names);
    VALUE values = rb_ary_new_capa(count);
    for (long i = 0; i < count; i++) {
        VALUE value = rb_attr_get(object, rb_sym2id(rb_ary_entry(names, i)));
        if (flat && RB_TYPE_P(value, T_ARRAY)) {
            rb_ary_concat(values, value);
        } else {
            rb_ary_push(values, value);
        }
    }
    return values;
}

// Library.variables(object, names): the values of these instance variables.
static VALUE variables(VALUE self, VALUE object, VALUE names)
{
    (void)self;
    return variables_of(object, names, false);
}

// Library.objects(object, names): the same, with the elements of an Array in place of it.
static VALUE objects(VALUE self, VALUE object, VALUE names)
{
    (void)self;
    return variables_of(object, names, true);
}

// Library.exact?(object, class): whether it is an instance of the class itself, without methods of its own.
static VALUE exact_p(VALUE self, VALUE object, VALUE klass)
{
    (void)self;
    return CLASS_OF(object) == klass ? Qtrue : Qfalse;
}

// Library.library_of(http): its Net::HTTP.
static VALUE library_of(VALUE self, VALUE http)
{
    (void)self;
    struct net_http_library *library = net_http_library_of_http(http);
    return library ? library->http : Qnil;
}

// Library.reuses?(http): whether it may begin with a kept connection. A keep_alive_timeout that is not positive forbids
// that, and an object that has a socket has just found its connection unusable. An exempt object may not.
static VALUE reuses_p(VALUE self, VALUE http)
{
    (void)self;
    VALUE limit = rb_attr_get(http, iv_keep_alive_timeout);
    if (RTEST(rb_attr_get(http, iv_socket)) || rb_attr_get(http, iv_choice) == Qfalse) return Qfalse;
    if (FIXNUM_P(limit)) return FIX2LONG(limit) > 0 ? Qtrue : Qfalse;
    if (!RTEST(rb_obj_is_kind_of(limit, rb_cNumeric))) return Qfalse;
    return RTEST(rb_funcall(limit, id_positive_p, 0)) ? Qtrue : Qfalse;
}

// Library.forks: the number of forks between the process that loaded Heddle and this one.
static VALUE forks(VALUE self)
{
    (void)self;
    return UINT2NUM(fork_count());
}

// Library.all_forks: the same and calls of Process._fork, whose parent shares its connections with the child.
static VALUE all_forks_of(VALUE self)
{
    (void)self;
    return all_forks();
}

// Library.forked
static VALUE forked(VALUE self)
{
    (void)self;
    forks_of_ruby++;
    return Qnil;
}

#define DEFINE(name)                                                             \
    rb_define_singleton_method(library_class, #name, name##_of, 1);              \
    rb_define_singleton_method(library_class, "set_" #name, set_##name##_of, 2); \
    iv_##name = rb_intern("heddle_" #name);

void net_http_kept_init(VALUE library_class)
{
    DEFINE(connection)
    DEFINE(choice)
    DEFINE(implied)
    DEFINE(foreign)
    DEFINE(changes)
    DEFINE(sent)
    iv_awaiting = rb_intern("@awaiting");
    iv_retries = rb_intern("@retries");
    iv_sound = rb_intern("@sound");
    iv_bound = rb_intern("@bound");
    iv_looked = rb_intern("@looked");
    iv_whole = rb_intern("@whole");
    iv_forks = rb_intern("@forks");
    iv_expires_at = rb_intern("@expires_at");
    iv_offsets = rb_intern("@offsets");
    iv_named_at = rb_intern("@named_at");
    iv_io = rb_intern("@io");
    iv_rbuffer = rb_intern("@rbuffer");
    iv_socket = rb_intern("@socket");
    iv_last_communicated = rb_intern("@last_communicated");
    iv_keep_alive_timeout = rb_intern("@keep_alive_timeout");
    iv_body_stream = rb_intern("@body_stream");
    iv_body_data = rb_intern("@body_data");
    id_on_connect = rb_intern("on_connect");
    id_positive_p = rb_intern("positive?");
    id_clock_gettime = rb_intern("clock_gettime");
    id_to_io = rb_intern("to_io");
    id_pending = rb_intern("pending");
    ID boot_time = rb_intern("CLOCK_BOOTTIME"); // Linux's: it goes on while the machine is suspended
    boot_clock =
        rb_const_defined(rb_mProcess, boot_time) ? rb_const_get(rb_mProcess, boot_time) : INT2FIX(CLOCK_MONOTONIC);
    iv_max_retries = rb_intern("@max_retries");
    iv_rbuf = rb_intern("@rbuf");
    iv_rbuf_offset = rb_intern("@rbuf_offset");
    rb_define_singleton_method(library_class, "keeping=", set_keeping, 1);
    rb_define_singleton_method(library_class, "keeps?", keeps_p, 1);
    rb_define_singleton_method(library_class, "answered", answered, 1);
    rb_define_singleton_method(library_class, "unread?", unread_p, 1);
    rb_define_singleton_method(library_class, "quiet?", quiet_p, 1);
    rb_define_singleton_method(library_class, "singular?", singular_p, 1);
    rb_define_singleton_method(library_class, "forks", forks, 0);
    rb_define_singleton_method(library_class, "all_forks", all_forks_of, 0);
    rb_define_singleton_method(library_class, "forked", forked, 0);
    rb_define_singleton_method(library_class, "jumped?", jumped_p, 2);
    rb_define_singleton_method(library_class, "release", release, 4);
    rb_define_singleton_method(library_class, "fresh?", fresh_p, 2);
    rb_define_singleton_method(library_class, "detach", detach_from, 3);
    rb_define_singleton_method(library_class, "attach", attach, 3);
    rb_define_singleton_method(library_class, "begins?", begins_p, 4);
    rb_define_singleton_method(library_class, "await", await, 2);
    rb_define_singleton_method(library_class, "trust", trust_connection, 1);
    rb_define_singleton_method(library_class, "whole?", whole_p, 2);
    rb_define_singleton_method(library_class, "variables", variables, 2);
    rb_define_singleton_method(library_class, "objects", objects, 2);
    rb_define_singleton_method(library_class, "exact?", exact_p, 2);
    rb_define_singleton_method(library_class, "library_of", library_of, 1);
    rb_define_singleton_method(library_class, "reuses?", reuses_p, 1);
    rb_define_singleton_method(library_class, "count", count, 3);
}
