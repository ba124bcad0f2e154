#include "net_http/tls.h"

#include <poll.h>
#include <string.h>

enum { MANY = 4 }; // records after which checking SSLSocket's methods pays off

static VALUE sym_wait_readable, sym_wait_writable;
static VALUE without_exceptions; // {exception: false}

// Bytes that SSLSocket itself has read ahead, for gets and similar methods, come first.
static bool read_ahead(const struct net_http_io *io)
{
    VALUE buffer = rb_attr_get(io->io, iv_rbuffer);
    return !RB_TYPE_P(buffer, T_STRING) || RSTRING_LEN(buffer) != 0;
}

VALUE net_http_tls_send(const struct net_http_io *io, VALUE string)
{
    VALUE arguments[2] = {string, without_exceptions};
    return rb_funcallv_kw(io->io, id_write_nonblock, 2, arguments, RB_PASS_KEYWORDS);
}

short net_http_tls_awaited(VALUE got)
{
    if (got == sym_wait_writable) return POLLOUT;
    return got == sym_wait_readable ? POLLIN : 0;
}

static VALUE method_of(const struct net_http_io *io, ID name)
{
    return rb_obj_method(io->io, ID2SYM(name));
}

static bool is_of_openssl(VALUE location)
{
    static const char file[] = "/openssl/buffering.rb";
    VALUE path = RB_TYPE_P(location, T_ARRAY) ? rb_ary_entry(location, 0) : Qnil;
    if (!RB_TYPE_P(path, T_STRING) || (size_t)RSTRING_LEN(path) < sizeof file - 1) return false;
    return memcmp(RSTRING_END(path) - (sizeof file - 1), file, sizeof file - 1) == 0;
}

// Returns whether read_nonblock only checks SSLSocket's buffer before it calls the receiving method, so that it can be
// skipped, which saves two Hashes a record. Unpatched, the former is in Ruby, the latter in C. A program may have
// replaced them, and its methods must be called.
static bool unpatched(const struct net_http_io *io)
{
    if (!RB_TYPE_P(rb_attr_get(io->io, iv_rbuffer), T_STRING) || !rb_obj_respond_to(io->io, id_sysread_nonblock, true))
        return false;
    VALUE asked = method_of(io, id_read_nonblock), receives = method_of(io, id_sysread_nonblock);
    return is_of_openssl(rb_funcall(asked, id_source_location, 0)) &&
           rb_funcall(receives, id_owner, 0) == io->library->ssl_socket &&
           NIL_P(rb_funcall(receives, id_source_location, 0));
}

VALUE net_http_tls_receive(struct net_http_io *io, size_t most, VALUE buffer)
{
    if (io->records < MANY && ++io->records == MANY) io->bypasses = unpatched(io);
    VALUE arguments[3] = {SIZET2NUM(most), buffer, without_exceptions};
    ID method = io->bypasses && !read_ahead(io) ? id_sysread_nonblock : id_read_nonblock;
    return rb_funcallv_kw(io->io, method, 3, arguments, RB_PASS_KEYWORDS);
}

void net_http_tls_define(void)
{
    sym_wait_readable = ID2SYM(rb_intern("wait_readable"));
    sym_wait_writable = ID2SYM(rb_intern("wait_writable"));
    without_exceptions = rb_hash_new();
    rb_hash_aset(without_exceptions, ID2SYM(rb_intern("exception")), Qfalse);
    rb_gc_register_mark_object(without_exceptions);
}
