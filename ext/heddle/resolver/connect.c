#include "resolver/connect.h"

#include "resolver/connect_filter.h"
#include "resolver/connect_race.h"
#include "resolver/names.h"
#include "resolver/resolver.h"
#include "os/main_ractor.h"
#include "os/socket_object.h"
#include "scope/deadline_scope.h"
#include "shims.h"
#include "task/current.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static VALUE mConnect, cSocket;
static ID id_connect_timeout, id_resolv_timeout, id_open_timeout, id_fast_fallback, id_tcp_fast_fallback;
static ID id_failure, id_plain_p, id_getaddrinfo, id_to_sockaddr, id_close, id_closed_p;
static ID id_original_new, id_original_open, id_original_tcp, id_claimed, id_in_a_thread, id_tcp, id_open;
static VALUE sym_call, sym_timeout, sym_no_local, sym_stream;
static bool knows_fast_fallback, knows_open_timeout; // the running Ruby's methods
static atomic_bool enabled = true;                   // other Ractors read it

// One call of TCPSocket.new or Socket.tcp. It stays on the stack while Ruby's own method waits instead, or while the
// block runs, and there each page counts: so the race, with its room for addresses, is on the heap.
struct connecting {
    struct connect_race *race;
    struct loop *loop; // NULL in a plain thread
    VALUE klass;       // class of the socket to make
    VALUE host, port, local_host, local_port;
    VALUE refusal;                                       // the first Heddle::ConnectRefused, or nil
    VALUE connect_timeout, resolv_timeout, open_timeout; // seconds or nil
    struct addresses *local;
    uint16_t port_number;
    int port_error; // EAI_…: the error for the service name
};

// ---- the arguments, and whether Heddle connects. False: Ruby's own method connects, or reports what is wrong with the
// arguments.

static bool take_options(struct connecting *call, VALUE options)
{
    ID known[] = {id_connect_timeout, id_resolv_timeout, id_fast_fallback, id_open_timeout};
    VALUE *values[] = {&call->connect_timeout, &call->resolv_timeout, NULL, &call->open_timeout};
    size_t found = 0;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (known[i] == id_fast_fallback && !knows_fast_fallback) continue;
        if (known[i] == id_open_timeout && !knows_open_timeout) continue;
        VALUE value = rb_hash_lookup2(options, ID2SYM(known[i]), Qundef);
        if (value == Qundef) continue;
        found++;
        if (values[i]) {
            *values[i] = value;
        } else if (!RTEST(value)) {
            return false;
        }
    }
    return found == RHASH_SIZE(options);
}

// The port is a number or the name of a service, which is usually in a file. Ruby uses the lowest 16 bits of numbers.
static bool take_port(struct connecting *call)
{
    VALUE port = call->port;
    if (NIL_P(port)) return true;
    if (FIXNUM_P(port)) {
        call->port_number = (uint16_t)FIX2LONG(port);
        call->port_error = FIX2LONG(port) < 0 ? EAI_SERVICE : 0;
        return true;
    }
    if (!RB_TYPE_P(port, T_STRING) || RSTRING_LEN(port) == 0 || RSTRING_LEN(port) > 64) return false;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    char name[65] = "";
    memcpy(name, RSTRING_PTR(port), (size_t)RSTRING_LEN(port));
    if (strlen(name) != (size_t)RSTRING_LEN(port)) return false;
    call->port_error = getaddrinfo(NULL, name, &hints, &found);
    if (call->port_error) return true;
    call->port_number = ntohs(((struct sockaddr_in *)found->ai_addr)->sin_port);
    freeaddrinfo(found);
    return true;
}

static bool take_host(const struct connecting *call)
{
    VALUE host = call->host;
    if (!RB_TYPE_P(host, T_STRING) || RSTRING_LEN(host) == 0) return false;
    const char *text = RSTRING_PTR(host);
    if (text[0] == '<' || memchr(text, '\0', (size_t)RSTRING_LEN(host))) return false; // "<any>", "<broadcast>"
    // Ruby handles addresses well, except those with a scope (fe80::1%eth0), which no hook can pass on.
    if (memchr(text, '%', (size_t)RSTRING_LEN(host))) return true;
    struct addresses *numeric = addresses_numeric(StringValueCStr(host));
    if (!numeric) return true;
    // In a task, Ruby's method would park with more stack below it: a page more for each waiting fiber. In a thread
    // with a deadline an exception may come, on which Ruby 4.0's method closes descriptor 0. Ruby's treatment of an
    // IPv4-mapped IPv6 address differs by version, and so do its messages when there is a local address.
    const struct socket_address *first = &numeric->list[0];
    bool mapped = numeric->count && first->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&first->ipv6.sin6_addr);
    bool local = !NIL_P(call->local_host) || !NIL_P(call->local_port);
    bool ours = (call->loop || knows_open_timeout) && numeric->count == 1 && !mapped && !local;
    free(numeric);
    return ours;
}

static bool take(struct connecting *call, int argc, const VALUE *argv, VALUE klass)
{
    call->klass = klass;
    call->refusal = Qnil;
    call->local_host = call->local_port = call->connect_timeout = call->resolv_timeout = call->open_timeout = Qnil;
    if (knows_fast_fallback && !RTEST(rb_funcall(cSocket, id_tcp_fast_fallback, 0)) &&
        !(rb_keyword_given_p() && RTEST(rb_hash_lookup(argv[argc - 1], ID2SYM(id_fast_fallback)))))
        return false;
    if (rb_keyword_given_p() && !take_options(call, argv[--argc])) return false;
    if (argc < 2 || argc > 4) return false;
    call->host = argv[0];
    call->port = argv[1];
    if (argc > 2) call->local_host = argv[2];
    if (argc > 3) call->local_port = argv[3];
    if (!take_host(call) || !take_port(call)) return false;
    call->host = rb_str_new_frozen(call->host); // what is looked up is what the filters see
    return true;
}

void connect_claim_next(bool claimed)
{
    rb_thread_local_aset(rb_thread_current(), id_claimed, claimed ? Qtrue : Qnil);
}

static bool was_claimed(void)
{
    if (NIL_P(rb_thread_local_aref(rb_thread_current(), id_claimed))) return false;
    connect_claim_next(false);
    return true;
}

// Heddle::Resolver::Connect.claim_next
static VALUE claim_next(VALUE self)
{
    connect_claim_next(true);
    return self;
}

// Returns whether Heddle can wait for this call: in a fiber of ours, or in a plain thread that has a deadline or a
// filter for connects, or whose caller has claimed the call.
static bool find_place(struct connecting *call)
{
    if (!enabled) return false;
    struct context context = context_of_fiber();
    call->loop = context.loop;
    if (!call->loop) {
        if (!NIL_P(context.scheduler)) return false;
        if (deadline_in_force() != DEADLINE_NEVER || was_claimed()) return true;
        return connect_filter_asks() && in_main_ractor();
    }
    loop_enter(call->loop);
    return true;
}

// ---- connecting

static struct addresses *local_addresses(VALUE host, VALUE port)
{
    VALUE arguments[] = {host, port, Qnil, sym_stream};
    VALUE found = rb_funcallv(rb_path2class("Addrinfo"), id_getaddrinfo, 4, arguments);
    struct addresses *local = calloc(1, sizeof(*local) + (size_t)RARRAY_LEN(found) * sizeof(local->list[0]));
    if (!local) rb_memerror();
    for (long i = 0; i < RARRAY_LEN(found); i++) {
        VALUE bytes = rb_check_funcall(RARRAY_AREF(found, i), id_to_sockaddr, 0, NULL); // of the core: does not raise
        struct socket_address *address = &local->list[local->count];
        if (!RB_TYPE_P(bytes, T_STRING) || (size_t)RSTRING_LEN(bytes) > sizeof(address->ipv6)) continue;
        address->length = (socklen_t)RSTRING_LEN(bytes);
        memcpy(&address->any, RSTRING_PTR(bytes), address->length);
        local->count++;
    }
    return local;
}

static VALUE inspect_address(const struct socket_address *address)
{
    if (address->length == 0) return Qnil;
    VALUE bytes = rb_str_new((const char *)&address->any, address->length);
    VALUE addrinfo = rb_funcall(rb_path2class("Addrinfo"), rb_intern("new"), 1, bytes);
    return rb_funcall(addrinfo, rb_intern("inspect_sockaddr"), 0);
}

RBIMPL_ATTR_NORETURN()
static void raise_lookup_error(const struct connecting *call, int error, int system_error)
{
    VALUE words = rb_funcall(mConnect, rb_intern("look_up"), 1, call->klass);
    rb_exc_raise(names_error(error, system_error, StringValueCStr(words)));
}

RBIMPL_ATTR_NORETURN()
static void raise_failure(const struct connecting *call)
{
    const struct connect_race *race = call->race;
    if (race->failure == RACE_REFUSED) rb_exc_raise(call->refusal);
    if (race->failure == RACE_LOOKUP) raise_lookup_error(call, race->error, race->system_error);
    VALUE kind = race->failure == RACE_CALL ? sym_call : race->failure == RACE_TIMEOUT ? sym_timeout : sym_no_local;
    bool local = race->call && strcmp(race->call, "bind(2)") == 0;
    VALUE arguments[] = {call->klass,
                         kind,
                         INT2NUM(race->error),
                         race->call ? rb_str_new_cstr(race->call) : Qnil,
                         local ? call->local_host : call->host,
                         local ? call->local_port : call->port,
                         inspect_address(&race->address),
                         UINT2NUM(race->attempts)};
    rb_exc_raise(rb_funcallv(mConnect, id_failure, 8, arguments));
}

static bool allows(void *caller, const struct socket_address *address, int64_t span)
{
    struct connecting *call = caller;
    VALUE refusal = connect_filter_refusal(&address->any, address->length, call->host, span);
    if (NIL_P(call->refusal)) call->refusal = refusal;
    return NIL_P(refusal);
}

// Ruby's limit for the look-up and all addresses is over before the first one if it is 0 or less.
static void check_open_timeout(const struct connecting *call)
{
    VALUE seconds = call->open_timeout;
    if (!RTEST(rb_obj_is_kind_of(seconds, rb_cNumeric)) || !RTEST(rb_funcall(seconds, rb_intern("<="), 1, INT2FIX(0))))
        return;
    rb_raise(rb_path2class("IO::TimeoutError"), "user specified timeout for %" PRIsVALUE ":%" PRIsVALUE, call->host,
             call->port);
}

static VALUE connect_body(VALUE argument)
{
    struct connecting *call = (struct connecting *)argument;
    check_open_timeout(call);
    struct connect_race *race = call->race = calloc(1, sizeof(*race));
    if (!race) rb_memerror();
    race->descriptor = -1;
    race->waiter.loop = call->loop;
    race->allows = allows;
    race->caller = call;
    race->port = call->port_number;
    race->connect_span = deadline_span(NIL_P(call->open_timeout) ? call->connect_timeout : call->open_timeout);
    race->resolve_span = NIL_P(call->open_timeout) ? deadline_span(call->resolv_timeout) : DEADLINE_NEVER;
    if (call->port_error) raise_lookup_error(call, call->port_error, 0);
    if (!NIL_P(call->local_host) || !NIL_P(call->local_port))
        race->local = call->local = local_addresses(call->local_host, call->local_port);
    race->reuse_local = call->klass != cSocket; // as Ruby does
    race->host = StringValueCStr(call->host);
    if (!connect_race_run(race)) raise_failure(call);
    return socket_take(call->klass, &race->descriptor);
}

static VALUE connect_end(VALUE argument)
{
    struct connecting *call = (struct connecting *)argument;
    if (call->race) connect_race_end(call->race);
    free(call->race);
    free(call->local);
    return Qnil;
}

static VALUE connect_to(struct connecting *call)
{
    VALUE socket = rb_ensure(connect_body, (VALUE)call, connect_end, (VALUE)call);
    RB_GC_GUARD(call->host);
    return socket;
}

// Calls Ruby's own method: the superclass's, or the class's own that resolver/connect.rb has kept under another name.
static VALUE as_ruby_does(int argc, VALUE *argv, VALUE klass, ID original)
{
    if (!rb_respond_to(klass, original)) return rb_call_super_kw(argc, argv, rb_keyword_given_p());
    return rb_funcall_passing_block_kw(klass, original, argc, argv, rb_keyword_given_p());
}

// TCPSocket's own connect(2) is in Ruby's C. A server does not connect.
static VALUE new_as_ruby_does(int argc, VALUE *argv, VALUE klass, ID original)
{
    if (resolver_simulated() && !RTEST(rb_class_inherited_p(klass, rb_path2class("TCPServer"))))
        rb_funcall(rb_path2class("Heddle::Simulation"), rb_intern("refuse"), 1, klass);
    return as_ruby_does(argc, argv, klass, original);
}

static VALUE close_open_socket(VALUE socket)
{
    return RTEST(rb_funcall(socket, id_closed_p, 0)) ? Qnil : rb_funcall(socket, id_close, 0);
}

// Other code has closed the socket meanwhile, which IO.open ignores as well.
static VALUE ignore_closed(VALUE unused, VALUE error)
{
    (void)unused;
    VALUE message = rb_funcall(error, rb_intern("message"), 0);
    if (!RB_TYPE_P(message, T_STRING) || strcmp(StringValueCStr(message), "closed stream") != 0) rb_exc_raise(error);
    return Qnil;
}

static VALUE connect_close_socket(VALUE socket)
{
    return rb_rescue2(close_open_socket, socket, ignore_closed, Qnil, rb_eIOError, (VALUE)0);
}

static VALUE yield_or_return(VALUE socket)
{
    return rb_block_given_p() ? rb_ensure(rb_yield, socket, connect_close_socket, socket) : socket;
}

// A class with its own initialize must run it.
static bool plain(VALUE klass)
{
    return RTEST(rb_funcall(mConnect, id_plain_p, 1, klass));
}

// Socket.tcp in Ruby ends at the first address that a filter refuses.
static VALUE tcp_as_ruby_does(int argc, VALUE *argv, VALUE klass)
{
    if (!connect_filter_asks() || !rb_respond_to(klass, id_original_tcp))
        return as_ruby_does(argc, argv, klass, id_original_tcp);
    return yield_or_return(connect_filter_tcp(argc, argv, klass, id_original_tcp));
}

// A connect that its caller has claimed, under another scheduler, which Ruby's own methods do not ask: a separate
// thread waits.
static VALUE connect_in_thread(struct connecting *call, int argc, VALUE *argv, VALUE klass, ID method, ID original)
{
    bool foreign = enabled && !NIL_P(rb_fiber_scheduler_current()) && !rb_block_given_p();
    if (!foreign || !was_claimed() || !take(call, argc, argv, klass) || (method == id_open && !plain(klass)))
        return method == id_tcp ? tcp_as_ruby_does(argc, argv, klass) : new_as_ruby_does(argc, argv, klass, original);
    VALUE arguments = rb_ary_new_from_args(2, klass, ID2SYM(method));
    rb_ary_cat(arguments, argv, argc);
    VALUE socket = rb_funcallv_kw(mConnect, id_in_a_thread, argc + 2, RARRAY_CONST_PTR(arguments),
                                  rb_keyword_given_p() ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS);
    RB_GC_GUARD(arguments);
    return socket;
}

/*
 * call-seq: TCPSocket.new(host, port, local_host = nil, local_port = nil, **timeouts) -> socket
 */
static VALUE tcp_new(int argc, VALUE *argv, VALUE klass)
{
    struct connecting call = {.race = NULL};
    if (rb_block_given_p() || !find_place(&call) || !take(&call, argc, argv, klass) || !plain(klass))
        return new_as_ruby_does(argc, argv, klass, id_original_new);
    return connect_to(&call);
}

/*
 * call-seq: TCPSocket.open(host, port, local_host = nil, local_port = nil, **timeouts) { |s| ... } -> socket or object
 */
static VALUE tcp_open(int argc, VALUE *argv, VALUE klass)
{
    struct connecting call = {.race = NULL};
    if (!find_place(&call)) return connect_in_thread(&call, argc, argv, klass, id_open, id_original_open);
    if (!take(&call, argc, argv, klass) || !plain(klass)) return new_as_ruby_does(argc, argv, klass, id_original_open);
    return yield_or_return(connect_to(&call));
}

/*
 * call-seq: Socket.tcp(host, port, local_host = nil, local_port = nil, **timeouts) { |socket| ... } -> socket or object
 */
static VALUE socket_tcp(int argc, VALUE *argv, VALUE klass)
{
    struct connecting call = {.race = NULL};
    if (!find_place(&call)) return connect_in_thread(&call, argc, argv, klass, id_tcp, id_original_tcp);
    if (!take(&call, argc, argv, cSocket)) // a subclass gets a Socket, too
        return tcp_as_ruby_does(argc, argv, klass);
    return yield_or_return(connect_to(&call));
}

/*
 * call-seq: Heddle.fast_fallback = true or false
 *
 * Sets whether Heddle itself connects to names, racing all addresses (the default). When false, TCPSocket and
 * Socket.tcp connect Ruby's way. That stops the thread's tasks on Ruby 3.4 and later; earlier versions try one address
 * after another.
 */
static VALUE set_fast_fallback(VALUE self, VALUE wanted)
{
    (void)self;
    enabled = RTEST(wanted);
    return wanted;
}

/*
 * call-seq: Heddle.fast_fallback -> true or false
 */
static VALUE fast_fallback(VALUE self)
{
    (void)self;
    return enabled ? Qtrue : Qfalse;
}

void Init_heddle_connect(void)
{
    id_connect_timeout = rb_intern("connect_timeout");
    id_resolv_timeout = rb_intern("resolv_timeout");
    id_open_timeout = rb_intern("open_timeout");
    id_fast_fallback = rb_intern("fast_fallback");
    id_tcp_fast_fallback = rb_intern("tcp_fast_fallback");
    id_failure = rb_intern("failure");
    id_plain_p = rb_intern("plain?");
    id_getaddrinfo = rb_intern("getaddrinfo");
    id_to_sockaddr = rb_intern("to_sockaddr");
    id_close = rb_intern("close");
    id_closed_p = rb_intern("closed?");
    id_original_new = rb_intern("new_without_heddle");
    id_original_open = rb_intern("open_without_heddle");
    id_original_tcp = rb_intern("tcp_without_heddle");
    id_claimed = rb_intern("heddle_connect_claimed");
    id_in_a_thread = rb_intern("in_a_thread");
    id_tcp = rb_intern("tcp");
    id_open = rb_intern("open");
    sym_call = ID2SYM(rb_intern("call"));
    sym_timeout = ID2SYM(rb_intern("timeout"));
    sym_no_local = ID2SYM(rb_intern("no_local"));
    sym_stream = ID2SYM(rb_intern("STREAM"));
    rb_gc_register_mark_object(cSocket = rb_path2class("Socket"));
    knows_fast_fallback = rb_respond_to(cSocket, id_tcp_fast_fallback);
    VALUE parameters = rb_funcall(rb_obj_method(cSocket, ID2SYM(rb_intern("tcp"))), rb_intern("parameters"), 0);
    knows_open_timeout = RTEST(rb_funcall(parameters, rb_intern("include?"), 1,
                                          rb_assoc_new(ID2SYM(rb_intern("key")), ID2SYM(id_open_timeout))));

    VALUE resolver = rb_define_module_under(heddle_module, "Resolver");
    rb_gc_register_mark_object(mConnect = rb_define_module_under(resolver, "Connect"));
    rb_define_singleton_method(mConnect, "claim_next", claim_next, 0);
    VALUE tcp_class = rb_define_module_under(mConnect, "TCPClass"),
          socket_class = rb_define_module_under(mConnect, "SocketClass");
    // Ractors have no schedulers of ours, but they connect, too.
    rb_ext_ractor_safe(true);
    rb_define_method(tcp_class, "new", tcp_new, -1);
    rb_define_method(tcp_class, "open", tcp_open, -1);
    rb_define_method(socket_class, "tcp", socket_tcp, -1);
    rb_ext_ractor_safe(false);
    rb_define_singleton_method(heddle_module, "fast_fallback=", set_fast_fallback, 1);
    rb_define_singleton_method(heddle_module, "fast_fallback", fast_fallback, 0);
}
