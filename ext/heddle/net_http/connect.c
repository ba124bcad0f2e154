// Connects to an address without a timer around the connect. Names are left to Ruby's own methods, which Heddle
// replaces elsewhere.
#include "net_http/library.h"

#include "os/gvl.h"
#include "resolver/connect.h"
#include "resolver/connect_filter.h"
#include "net_http/wait.h"
#include "os/connecting.h"
#include "os/socket_object.h"
#include "portable.h"
#include "shims.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

// The length of the socket address; 0 if the text is not an address.
static socklen_t numeric(const char *text, int port, struct sockaddr_storage *address)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        return sizeof *four;
    }
    if (inet_pton(AF_INET6, text, &six->sin6_addr) != 1) return 0;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)port);
    return sizeof *six;
}

struct connecting {
    VALUE klass, socket; // nil until the socket owns the descriptor
    struct sockaddr_storage address;
    socklen_t length;
    int descriptor; // -1 once the socket owns it
    int64_t span;
    bool complete;
};

static bool await_connected(const struct connecting *connecting, int descriptor)
{
    struct pollfd now = {.fd = descriptor, .events = POLLOUT};
    if (gvl_poll(&now, 1, 0) > 0) return true; // a connect on loopback has ended by the time it returns
    return net_http_wait(connecting->socket, descriptor, POLLOUT, connecting->span);
}

static VALUE connect_body(VALUE argument)
{
    struct connecting *connecting = (struct connecting *)argument;
    int descriptor = portable_stream_socket(connecting->address.ss_family);
    if (descriptor < 0) return Qnil;
    connecting->descriptor = descriptor;
    int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    bool failed = connecting_begin(descriptor, (struct sockaddr *)&connecting->address, connecting->length) < 0;
    if (failed && errno != EINPROGRESS) return Qnil;
    connecting->socket = socket_take(connecting->klass, &connecting->descriptor);
    if (failed) {
        if (!await_connected(connecting, descriptor)) return Qfalse;
        int error = connecting_error(rb_io_descriptor(connecting->socket));
        if (error) return INT2NUM(error);
    }
    connecting->complete = true;
    return connecting->socket;
}

static VALUE connect_end(VALUE argument)
{
    struct connecting *connecting = (struct connecting *)argument;
    int descriptor = connecting->descriptor;
    connecting->descriptor = -1;
    if (descriptor >= 0) close(descriptor);
    if (!connecting->complete && !NIL_P(connecting->socket)) socket_discard(connecting->socket);
    return Qnil;
}

// Connect.connect(class, address, port, seconds): returns a connected socket with TCP_NODELAY; false when the time
// is over; the errno of a failed wait; nil for any other failure, which Ruby's own methods then retry and report. Also
// nil if a filter for connects must be asked, which those methods do.
static VALUE connect_to(VALUE self, VALUE klass, VALUE address, VALUE port, VALUE seconds)
{
    (void)self;
    if (!RB_TYPE_P(address, T_STRING) || !FIXNUM_P(port) || FIX2LONG(port) < 0 || FIX2LONG(port) > 65535) return Qnil;
    struct connecting connecting = {.klass = klass, .socket = Qnil, .descriptor = -1, .span = deadline_span(seconds)};
    connecting.length = numeric(StringValueCStr(address), FIX2INT(port), &connecting.address);
    if (!connecting.length || connect_filter_asks()) return Qnil;
    return rb_ensure(connect_body, (VALUE)&connecting, connect_end, (VALUE)&connecting);
}

// Connect.buffered(http, socket): the BufferedIO that the library would make for this socket.
static VALUE connect_buffered(VALUE self, VALUE http, VALUE socket)
{
    (void)self;
    struct net_http_settings settings = net_http_settings_of(http);
    return net_http_library_buffered(net_http_library_of_http(http), socket, &settings,
                                     rb_attr_get(http, iv_debug_output));
}

static VALUE unclaim(VALUE unused)
{
    connect_claim_next(false);
    return unused;
}

// Connect.with_bounded_look_up { }: the next connect to a name in the block looks the name up within its timeout.
static VALUE with_bounded_look_up(VALUE self)
{
    connect_claim_next(true);
    return rb_ensure(rb_yield, self, unclaim, Qnil);
}

void net_http_connect_define(VALUE module)
{
    rb_define_singleton_method(module, "connect", connect_to, 4);
    rb_define_singleton_method(module, "buffered", connect_buffered, 2);
    rb_define_singleton_method(module, "with_bounded_look_up", with_bounded_look_up, 0);
}
