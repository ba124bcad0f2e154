#include "resolver/connect_filter.h"

#include "os/main_ractor.h"
#include "scope/scope.h"
#include "shims.h"

#include <ruby/ractor.h>
#include <stdatomic.h>

static VALUE mConnectFilter, mGuard;
static _Atomic(VALUE) process_filter = Qnil; // of the whole process; other Ractors read it
static atomic_bool nested; // a filter was given to a block once: the running code's scopes must be asked for
static ID id_refusal, id_new, id_unasked, id_without, id_connect_without, id_connect_nonblock_without;
static ID id_tcp_socket, id_unix_socket, id_socket_connect, id_udp_connect, id_socket_tcp;

// ---- which filters bind the running code

// Another Ractor has no scopes of ours. It may only call a filter that is shareable; nil stands for any other.
static VALUE of_ractor(void)
{
    VALUE filter = process_filter;
    if (NIL_P(filter) || !NIL_P(rb_thread_local_aref(rb_thread_current(), id_unasked))) return 0;
    return rb_ary_new_from_args(1, rb_ractor_shareable_p(filter) ? filter : Qnil);
}

// An Array, innermost first; or 0.
static VALUE in_force(void)
{
    if (NIL_P(process_filter) && !nested) return 0;
    if (!in_main_ractor()) return of_ractor();
    VALUE filters = nested ? scope_filters_in_force() : 0;
    filters = filters ? rb_ary_dup(filters) : rb_ary_new();
    long count = RARRAY_LEN(filters);
    bool ends = count && !RTEST(RARRAY_AREF(filters, count - 1));
    if (ends) {
        rb_ary_pop(filters);
    } else if (!NIL_P(process_filter)) {
        rb_ary_push(filters, process_filter);
    }
    return RARRAY_LEN(filters) ? filters : 0;
}

bool connect_filter_asks(void)
{
    return in_force();
}

VALUE connect_filter_refusal(const struct sockaddr *address, socklen_t length, VALUE host, int64_t span)
{
    if (!connect_filter_asks()) return Qnil;
    VALUE bytes = rb_str_new((const char *)address, length);
    VALUE addrinfo = rb_funcall(rb_path2class("Addrinfo"), id_new, 1, bytes);
    VALUE seconds = span == DEADLINE_NEVER ? Qnil : DBL2NUM((double)span / 1e9);
    return rb_funcall(mConnectFilter, id_refusal, 3, addrinfo, host, seconds);
}

/*
 * call-seq: Heddle::ConnectFilter.in_force -> Array
 *
 * The filters that bind the running code, innermost first. nil stands for one that this Ractor may not call.
 *
 * @api private
 */
static VALUE in_force_list(VALUE self)
{
    (void)self;
    VALUE filters = in_force();
    return filters ? filters : rb_ary_new();
}

/*
 * call-seq: Heddle::ConnectFilter.nested -> Array
 *
 * The filters of the blocks around the running code, for {.within} in another thread.
 *
 * @api private
 */
static VALUE nested_list(VALUE self)
{
    (void)self;
    VALUE filters = nested ? scope_filters_in_force() : 0;
    return filters ? rb_ary_dup(filters) : rb_ary_new();
}

/*
 * call-seq: Heddle::ConnectFilter.keep(filters) -> filters
 *
 * In a child of fork: binds the only thread by these filters if it has left the task whose filters they are.
 *
 * @api private
 */
static VALUE keep(VALUE self, VALUE filters)
{
    (void)self;
    if (!scope_filters_in_force() && RARRAY_LEN(filters)) scope_keep_filters(filters);
    return filters;
}

/*
 * call-seq: Heddle::ConnectFilter.process -> filter or nil
 *
 * @api private
 */
static VALUE process(VALUE self)
{
    (void)self;
    return process_filter;
}

/*
 * call-seq: Heddle::ConnectFilter.process = filter or nil
 *
 * @api private
 */
static VALUE set_process(VALUE self, VALUE filter)
{
    (void)self;
    process_filter = filter;
    return filter;
}

// ---- blocks

static VALUE ask_again(VALUE unused)
{
    (void)unused;
    rb_thread_local_aset(rb_thread_current(), id_unasked, Qnil);
    return Qnil;
}

/*
 * call-seq: Heddle::ConnectFilter.within(filter) { ... } -> object
 *
 * Binds the block by the filter; by none at all if it is false.
 *
 * @api private
 */
static VALUE connect_filter_within(VALUE self, VALUE filter)
{
    (void)self;
    if (!in_main_ractor()) { // only false comes here
        rb_thread_local_aset(rb_thread_current(), id_unasked, Qtrue);
        return rb_ensure(yield_nothing, Qnil, ask_again, Qnil);
    }
    struct scope *scope = scope_new(SCOPE_FILTER, DEADLINE_NEVER);
    VALUE object = scope->self;
    scope->filter = filter;
    nested = true;
    scope_open(scope, scope_chain_current(), DEADLINE_NEVER);
    VALUE result = scope_call(scope, yield_nothing, Qnil);
    RB_GC_GUARD(object);
    return result;
}

/*
 * call-seq: Heddle::ConnectFilter.time_over?(error) -> true or false
 *
 * Whether a deadline or a Timeout around the running code raised the error.
 *
 * @api private
 */
static VALUE time_over_p(VALUE self, VALUE error)
{
    (void)self;
    return deadline_raised(error) ? Qtrue : Qfalse;
}

// ---- methods of Ruby's classes. Without a filter each calls Ruby's own method, which connect_filter.rb keeps.

static VALUE original(VALUE self, ID original, int argc, const VALUE *argv)
{
    return rb_funcallv_kw(self, original, argc, argv, rb_keyword_given_p() ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS);
}

static VALUE guarded(VALUE self, ID guard, int argc, const VALUE *argv)
{
    VALUE arguments = rb_ary_new_from_args(1, self);
    rb_ary_cat(arguments, argv, argc);
    VALUE result = rb_funcallv_kw(mGuard, guard, argc + 1, RARRAY_CONST_PTR(arguments),
                                  rb_keyword_given_p() ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS);
    RB_GC_GUARD(arguments);
    return result;
}

/*
 * call-seq: TCPSocket.new(host, port, local_host = nil, local_port = nil, **timeouts) -> socket
 *
 * @api private
 */
static VALUE tcp_socket_initialize(int argc, VALUE *argv, VALUE self)
{
    if (!connect_filter_asks()) return original(self, id_without, argc, argv);
    return guarded(self, id_tcp_socket, argc, argv);
}

/*
 * call-seq: UNIXSocket.new(path) -> socket
 *
 * @api private
 */
static VALUE unix_socket_initialize(int argc, VALUE *argv, VALUE self)
{
    if (!connect_filter_asks()) return original(self, id_without, argc, argv);
    return guarded(self, id_unix_socket, argc, argv);
}

/*
 * call-seq: udp_socket.connect(host, port) -> 0
 *
 * @api private
 */
static VALUE udp_socket_connect(int argc, VALUE *argv, VALUE self)
{
    if (!connect_filter_asks()) return original(self, id_connect_without, argc, argv);
    return guarded(self, id_udp_connect, argc, argv);
}

/*
 * call-seq: socket.connect(address) -> 0
 *
 * @api private
 */
static VALUE socket_connect(int argc, VALUE *argv, VALUE self)
{
    if (!connect_filter_asks() || argc != 1) return original(self, id_connect_without, argc, argv);
    VALUE address = guarded(self, id_socket_connect, 1, argv);
    return rb_funcallv(self, id_connect_without, 1, &address);
}

/*
 * call-seq: socket.__connect_nonblock(address, exception) -> 0 or :wait_writable
 *
 * @api private
 */
static VALUE socket_connect_nonblock(int argc, VALUE *argv, VALUE self)
{
    if (!connect_filter_asks() || argc != 2) return original(self, id_connect_nonblock_without, argc, argv);
    VALUE arguments[2] = {guarded(self, id_socket_connect, 1, argv), argv[1]};
    return rb_funcallv(self, id_connect_nonblock_without, 2, arguments);
}

VALUE connect_filter_tcp(int argc, const VALUE *argv, VALUE klass, ID method)
{
    VALUE arguments = rb_ary_new_from_args(2, klass, ID2SYM(method));
    rb_ary_cat(arguments, argv, argc);
    VALUE socket = rb_funcallv_kw(mGuard, id_socket_tcp, argc + 2, RARRAY_CONST_PTR(arguments),
                                  rb_keyword_given_p() ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS);
    RB_GC_GUARD(arguments);
    return socket;
}

void Init_heddle_connect_filter(void)
{
    id_refusal = rb_intern("refusal");
    id_new = rb_intern("new");
    id_unasked = rb_intern("heddle_connects_unasked");
    id_without = rb_intern("initialize_without_filter");
    id_connect_without = rb_intern("connect_without_filter");
    id_connect_nonblock_without = rb_intern("__connect_nonblock_without_filter");
    id_tcp_socket = rb_intern("tcp_socket");
    id_unix_socket = rb_intern("unix_socket");
    id_udp_connect = rb_intern("udp_connect");
    id_socket_connect = rb_intern("socket_connect");
    id_socket_tcp = rb_intern("socket_tcp");
    rb_gc_register_address((VALUE *)&process_filter);
    rb_gc_register_mark_object(mConnectFilter = rb_define_module_under(heddle_module, "ConnectFilter"));
    rb_gc_register_mark_object(mGuard = rb_define_module_under(mConnectFilter, "Guard"));
    VALUE methods = rb_define_module_under(mGuard, "Methods");
    VALUE tcp = rb_define_module_under(methods, "TCPSocket"), udp = rb_define_module_under(methods, "UDPSocket");
    VALUE local = rb_define_module_under(methods, "UNIXSocket"), general = rb_define_module_under(methods, "Socket");
    rb_define_singleton_method(mConnectFilter, "process", process, 0);
    rb_define_singleton_method(mConnectFilter, "process=", set_process, 1);
    rb_define_singleton_method(mConnectFilter, "nested", nested_list, 0);
    rb_define_singleton_method(mConnectFilter, "keep", keep, 1);
    rb_ext_ractor_safe(true); // every Ractor connects
    rb_define_singleton_method(mConnectFilter, "in_force", in_force_list, 0);
    rb_define_singleton_method(mConnectFilter, "within", connect_filter_within, 1);
    rb_define_singleton_method(mConnectFilter, "time_over?", time_over_p, 1);
    rb_define_method(tcp, "initialize", tcp_socket_initialize, -1);
    rb_define_method(local, "initialize", unix_socket_initialize, -1);
    rb_define_method(udp, "connect", udp_socket_connect, -1);
    rb_define_method(general, "connect", socket_connect, -1);
    rb_define_method(general, "__connect_nonblock", socket_connect_nonblock, -1);
    rb_ext_ractor_safe(false);
}
