// The usual beginning and end of a session on a kept connection: what lib/heddle/net_http/keep_alive.rb would do by
// some thirty calls. Each takes or gives the connection in one go: no other code runs in the middle, and so neither a
// strike nor another thread finds it without an owner, or with two.
#include "net_http/net_http_connection.h"
#include "net_http/net_http_kept.h"
#include "net_http/net_http_methods.h"

#include "names/connect_filter.h"
#include "os/fork.h"

static ID iv_socket, iv_last_communicated, iv_keep_alive_timeout, iv_io, iv_read_timeout, iv_write_timeout,
    iv_continue_timeout, iv_rbuf, iv_sweeps_at, iv_sweeper;
static ID id_on_connect, id_positive_p, id_buffered_io, id_alive_p, id_sweep_by;

// What Ruby code has told: the KeepAlive::Store and its parts. nil until then.
static struct {
    VALUE store, places;
    VALUE plain;  // Hash: true for classes that make connections as the library does
    VALUE closed; // a closed IO
    long per_host, total;
    unsigned forks; // fork_count of the store's process
    bool chosen;    // a program's block adds to each key
} kept = {.store = Qnil, .places = Qnil, .plain = Qnil, .closed = Qnil};

// Library.keep(store, places, limits, closed, chosen): limits: the most connections to one host and port, and in all.
static VALUE keep(VALUE self, VALUE store, VALUE places, VALUE limits, VALUE closed, VALUE chosen)
{
    (void)self;
    kept.per_host = NUM2LONG(rb_ary_entry(limits, 0));
    kept.total = NUM2LONG(rb_ary_entry(limits, 1));
    kept.store = store;
    kept.places = places;
    kept.closed = closed;
    kept.chosen = RTEST(chosen);
    kept.forks = fork_count();
    return Qnil;
}

// Library.plain = classes
static VALUE set_plain(VALUE self, VALUE classes)
{
    (void)self;
    return kept.plain = classes;
}

// Outside of the main Ractor no object has come so far as to ask.
static bool keeps_here(void)
{
    return net_http_keeping && kept.forks == fork_count();
}

// ---- the beginning

// Whether a kept connection may be used again, as it is almost always.
static bool fresh(VALUE self, double now)
{
    const struct net_http_connection *connection = net_http_connection_get(self);
    return !net_http_clock_jumped(connection->offsets, now) && !net_http_connection_expired(connection, now) &&
           now - connection->named_at <= net_http_kept_idle && net_http_look(connection->io) == Qtrue;
}

// Library.fresh?(connection): see above. Otherwise, or if a filter for connects must be asked, KeepAlive finds out what
// is to be done.
static VALUE fresh_p(VALUE self, VALUE connection)
{
    (void)self;
    return !connect_filter_asks() && fresh(connection, net_http_clock_now()) ? Qtrue : Qfalse;
}

// Because @last_communicated is not nil, the library looks once more whether the server has closed the connection,
// before the first request.
static void begin_session(VALUE http, VALUE buffered, VALUE connection, double now)
{
    struct net_http_connection *begun = net_http_connection_get(connection);
    begun->awaiting = Qtrue;
    begun->forks = forks_seen(); // a child of fork has closed its copy
    rb_ivar_set(http, iv_socket, buffered);
    rb_ivar_set(http, iv_last_communicated, DBL2NUM(now));
}

// Library.attach(http, buffered, connection): begins another session on a connection.
static VALUE attach(VALUE self, VALUE http, VALUE buffered, VALUE connection)
{
    (void)self;
    begin_session(http, buffered, connection, net_http_clock_now());
    rb_funcall(http, id_on_connect, 0);
    net_http_connection_set(rb_attr_get(http, iv_socket), connection); // Heddle::NetHTTP.for exchanges the BufferedIO
    return Qnil;
}

struct timeouts {
    VALUE read, write, continuing;
};

// The class that the library would use now for a new connection, if it is one of Heddle's; or 0.
static VALUE buffered_class(const struct net_http_library *library)
{
    if (!library->wrapping_pristine || !library->buffered_template) return 0;
    if (!rb_const_defined_at(library->http, id_buffered_io)) return 0;
    VALUE klass = rb_const_get_at(library->http, id_buffered_io);
    return net_http_library_of_shadow(klass) ? klass : 0;
}

// The same as its `new`.
static VALUE new_buffered(const struct net_http_library *library, VALUE klass, VALUE io, struct timeouts timeouts)
{
    VALUE buffered = rb_obj_alloc(klass), template = library->buffered_template;
    for (long i = 0; i < RARRAY_LEN(template); i += 2) {
        ID name = rb_sym2id(RARRAY_AREF(template, i));
        VALUE value = RARRAY_AREF(template, i + 1);
        if (name == iv_io) value = io;
        if (name == iv_read_timeout) value = timeouts.read;
        if (name == iv_write_timeout) value = timeouts.write;
        if (name == iv_continue_timeout) value = timeouts.continuing;
        if (name == iv_rbuf) value = rb_str_new(NULL, 0);
        rb_ivar_set(buffered, name, value);
    }
    return buffered;
}

// Library.resume(http, address, port, limit, read_timeout, write_timeout, continue_timeout): begins a session on a kept
// connection, and returns true, if all is as usual. Call it only for an object whose connection depends on the address
// and the port alone, and which has no debug_output; `limit` is its keep_alive_timeout.
static VALUE resume(VALUE self, VALUE http, VALUE address, VALUE port, VALUE limit, VALUE read_timeout,
                    VALUE write_timeout, VALUE continue_timeout)
{
    (void)self;
    struct net_http_library *library = net_http_library_of_http(http);
    if (!library || CLASS_OF(http) != library->http || kept.chosen || !keeps_here() || connect_filter_asks())
        return Qfalse;
    if (!RB_TYPE_P(address, T_STRING) || !FIXNUM_P(port) || !FIXNUM_P(limit) || FIX2LONG(limit) <= 0) return Qfalse;
    if (OBJ_FROZEN(http) || net_http_kept_exempt(http) || rb_hash_lookup(kept.plain, library->http) != Qtrue)
        return Qfalse;
    VALUE klass = buffered_class(library);
    if (!klass) return Qfalse;
    struct net_http_key key = net_http_bare_key(library->http, address, port);
    VALUE connection = net_http_places_find(kept.places, &key);
    double now = net_http_clock_now();
    if (NIL_P(connection) || !fresh(connection, now)) return Qfalse;
    VALUE buffered = new_buffered(library, klass, net_http_connection_get(connection)->io,
                                  (struct timeouts){read_timeout, write_timeout, continue_timeout});
    net_http_connection_set(buffered, connection);
    if (!net_http_places_delete(kept.places, connection)) return Qfalse; // somebody's eql? or clock has let others run
    net_http_kept_count(NET_HTTP_REUSED, 1);
    begin_session(http, buffered, connection, now);
    return Qtrue;
}

// Library.reuses?(http): whether it may begin with a kept connection. A keep_alive_timeout that is not positive forbids
// that, and an object that has a socket has just found its connection unusable. An exempt object may not.
static VALUE reuses_p(VALUE self, VALUE http)
{
    (void)self;
    VALUE limit = rb_attr_get(http, iv_keep_alive_timeout);
    if (RTEST(rb_attr_get(http, iv_socket)) || net_http_kept_exempt(http)) return Qfalse;
    if (FIXNUM_P(limit)) return FIX2LONG(limit) > 0 ? Qtrue : Qfalse;
    if (!RTEST(rb_obj_is_kind_of(limit, rb_cNumeric))) return Qfalse;
    return RTEST(rb_funcall(limit, id_positive_p, 0)) ? Qtrue : Qfalse;
}

// ---- the end

// Takes a connection away from its session, unless another thread has done so meanwhile, or has begun a request. Code
// that still has this BufferedIO, a dup of the Net::HTTP for example, finds it closed.
static bool detach(VALUE buffered, VALUE connection, VALUE closed, struct net_http_offsets offsets)
{
    struct net_http_connection *detached = net_http_connection_get(connection);
    if (net_http_connection_at(buffered) != connection || detached->sound != NET_HTTP_SOUND) return false;
    detached->offsets = offsets;
    net_http_connection_set(buffered, Qnil);
    rb_ivar_set(buffered, iv_io, closed);
    return true;
}

// Whether the connection may be kept: no request is under way, no other process has it, nothing has come since, and
// neither the program nor its own requests forbid it. nil if bytes have come over TLS, see net_http_look, and the rest
// holds.
static VALUE may_be_kept(VALUE http, VALUE connection, VALUE buffered, struct net_http_offsets *offsets)
{
    const struct net_http_connection *kept_one = net_http_connection_get(connection);
    if (kept_one->sound != NET_HTTP_SOUND || kept_one->bound || kept_one->forks != forks_seen()) return Qfalse;
    if (net_http_kept_foreign(http) || net_http_kept_exempt(http)) return Qfalse;
    double now = net_http_clock_now();
    *offsets = net_http_clock_offsets(now);
    if (net_http_connection_expired(kept_one, now)) return Qfalse;
    if (rb_attr_get(buffered, iv_io) != kept_one->io || net_http_kept_unread(buffered)) return Qfalse;
    return net_http_look(kept_one->io);
}

// Library.release(http, connection, buffered, closed): takes a connection away from a session that ends, if it may be
// kept. Returns whether this is so; nil if it may be, but bytes have come over TLS.
static VALUE release(VALUE self, VALUE http, VALUE connection, VALUE buffered, VALUE closed)
{
    (void)self;
    struct net_http_offsets offsets;
    VALUE may = may_be_kept(http, connection, buffered, &offsets);
    return may == Qtrue && !detach(buffered, connection, closed, offsets) ? Qfalse : may;
}

// Library.detach(connection, buffered, closed): the last step of that.
static VALUE detach_from(VALUE self, VALUE connection, VALUE buffered, VALUE closed)
{
    (void)self;
    struct net_http_offsets offsets = net_http_clock_offsets(net_http_clock_now());
    return detach(buffered, connection, closed, offsets) ? Qtrue : Qfalse;
}

// Whether the thread that closes connections will look at them by that time; see KeepAlive::Store.
static bool swept_by(double time)
{
    VALUE at = rb_attr_get(kept.store, iv_sweeps_at), sweeper = rb_attr_get(kept.store, iv_sweeper);
    return RTEST(at) && NUM2DBL(at) <= time && !NIL_P(sweeper) && RTEST(rb_funcall(sweeper, id_alive_p, 0));
}

// Library.leave(http, buffered): the session ends. Puts its connection into the store and returns true, if all is as
// usual: without TLS, and with room in the store.
static VALUE leave(VALUE self, VALUE http, VALUE buffered)
{
    (void)self;
    VALUE connection = net_http_keeping ? net_http_connection_at(buffered) : Qnil;
    if (NIL_P(connection) || !keeps_here()) return Qfalse;
    const struct net_http_connection *left = net_http_connection_get(connection);
    struct net_http_offsets offsets;
    if (!RB_TYPE_P(left->io, T_FILE) || may_be_kept(http, connection, buffered, &offsets) != Qtrue) return Qfalse;
    if (!net_http_places_have_room(kept.places, &left->values, kept.per_host, kept.total)) return Qfalse;
    if (!detach(buffered, connection, kept.closed, offsets)) return Qfalse;
    double until = left->expires_at;
    net_http_places_add(kept.places, connection, &left->values);
    // The thread that closes connections looks at all of them after it has set @sweeps_at to nil.
    if (!swept_by(until)) rb_funcall(kept.store, id_sweep_by, 1, DBL2NUM(until));
    return Qtrue;
}

void net_http_session_init(VALUE library_class)
{
    rb_gc_register_address(&kept.store);
    rb_gc_register_address(&kept.places);
    rb_gc_register_address(&kept.plain);
    rb_gc_register_address(&kept.closed);
    iv_socket = rb_intern("@socket");
    iv_last_communicated = rb_intern("@last_communicated");
    iv_keep_alive_timeout = rb_intern("@keep_alive_timeout");
    iv_io = rb_intern("@io");
    iv_read_timeout = rb_intern("@read_timeout");
    iv_write_timeout = rb_intern("@write_timeout");
    iv_continue_timeout = rb_intern("@continue_timeout");
    iv_rbuf = rb_intern("@rbuf");
    iv_sweeps_at = rb_intern("@sweeps_at");
    iv_sweeper = rb_intern("@sweeper");
    id_on_connect = rb_intern("on_connect");
    id_positive_p = rb_intern("positive?");
    id_buffered_io = rb_intern("BufferedIO");
    id_alive_p = rb_intern("alive?");
    id_sweep_by = rb_intern("sweep_by");
    rb_define_singleton_method(library_class, "keep", keep, 5);
    rb_define_singleton_method(library_class, "plain=", set_plain, 1);
    rb_define_singleton_method(library_class, "fresh?", fresh_p, 1);
    rb_define_singleton_method(library_class, "attach", attach, 3);
    rb_define_singleton_method(library_class, "resume", resume, 7);
    rb_define_singleton_method(library_class, "reuses?", reuses_p, 1);
    rb_define_singleton_method(library_class, "release", release, 4);
    rb_define_singleton_method(library_class, "detach", detach_from, 3);
    rb_define_singleton_method(library_class, "leave", leave, 2);
}
