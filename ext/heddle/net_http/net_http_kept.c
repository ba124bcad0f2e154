// What lib/heddle/net_http/keep_alive needs of C: variables that no program sees, and looks at a socket that change
// nothing.
#include "net_http/net_http_kept.h"

#include "net_http/net_http_methods.h"
#include "os/fork.h"
#include "shims.h"

#include <errno.h>
#include <sys/socket.h>

// Without @, which hides them: `instance_variables`, `inspect` and Marshal do not show them.
static ID iv_connection, iv_choice, iv_implied, iv_foreign, iv_changes, iv_sent;
static ID iv_awaiting, iv_retries; // of a KeepAlive::Connection
static ID iv_max_retries, iv_rbuf, iv_rbuf_offset;

static bool keeping; // changed by the main Ractor only

// Library.keeping = flag
static VALUE set_keeping(VALUE self, VALUE flag)
{
    (void)self;
    keeping = RTEST(flag);
    return flag;
}

// Library.keeps?(http): whether connections of this object's library are kept. Never outside of the main Ractor.
static VALUE keeps_p(VALUE self, VALUE http)
{
    (void)self;
    return keeping && net_http_library_of_http(http) ? Qtrue : Qfalse;
}

// Defines Library.NAME(object) and Library.set_NAME(object, value).
#define VARIABLE(name)                                            \
    static VALUE name##_of(VALUE self, VALUE object)              \
    {                                                             \
        (void)self;                                               \
        return rb_attr_get(object, iv_##name);                    \
    }                                                             \
    static VALUE set_##name##_of(VALUE self, VALUE object, VALUE value) \
    {                                                             \
        (void)self;                                               \
        return rb_ivar_set(object, iv_##name, value);             \
    }

VARIABLE(connection) // of a BufferedIO: its KeepAlive::Connection
VARIABLE(choice)     // of a Net::HTTP: its keep_alive, or nil
VARIABLE(implied)    // of a request: the value of its field Connection that the library itself set
VARIABLE(foreign)    // of a Net::HTTP: true once a program has begun a request by itself
VARIABLE(changes)    // of an OpenSSL::X509::Store: how often it was changed
VARIABLE(sent)       // of a stream: true once it was the body of a request

void net_http_kept_answered(VALUE socket)
{
    VALUE connection = rb_attr_get(socket, iv_connection);
    if (NIL_P(connection)) return;
    VALUE awaiting = rb_attr_get(connection, iv_awaiting);
    if (!RTEST(awaiting)) return;
    rb_ivar_set(connection, iv_awaiting, Qfalse);
    if (awaiting != Qtrue) rb_ivar_set(awaiting, iv_max_retries, rb_attr_get(connection, iv_retries));
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

// Library.unread?(buffered): whether a BufferedIO holds bytes that nobody has read.
static VALUE unread_p(VALUE self, VALUE buffered)
{
    (void)self;
    VALUE rbuf = rb_attr_get(buffered, iv_rbuf), offset = rb_attr_get(buffered, iv_rbuf_offset);
    if (!RB_TYPE_P(rbuf, T_STRING)) return Qtrue; // a program's own
    return RSTRING_LEN(rbuf) > (FIXNUM_P(offset) ? FIX2LONG(offset) : 0) ? Qtrue : Qfalse;
}

// Library.quiet?(socket): whether an open socket has received nothing, neither bytes nor the end. Consumes nothing.
static VALUE quiet_p(VALUE self, VALUE socket)
{
    (void)self;
    int descriptor = RB_TYPE_P(socket, T_FILE) ? shim_open_descriptor(socket) : -1;
    if (descriptor < 0 || rb_io_read_pending(RFILE(socket)->fptr)) return Qfalse;
    char byte;
    ssize_t count;
    do {
        count = recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Qtrue : Qfalse;
}

// Library.singular?(object): whether an object has methods of its own.
static VALUE singular_p(VALUE self, VALUE object)
{
    (void)self;
    return RB_FL_TEST(CLASS_OF(object), RUBY_FL_SINGLETON) ? Qtrue : Qfalse;
}

// Library.forks: the number of forks between the process that loaded Heddle and this one.
static VALUE forks(VALUE self)
{
    (void)self;
    return UINT2NUM(fork_count());
}

#define DEFINE(name)                                                                   \
    rb_define_singleton_method(library_class, #name, name##_of, 1);                    \
    rb_define_singleton_method(library_class, "set_" #name, set_##name##_of, 2);       \
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
}
