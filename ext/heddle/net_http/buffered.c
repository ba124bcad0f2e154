// The methods of Net::BufferedIO that move bytes. Each first checks whether the fast path applies, and otherwise calls
// stock's own method.
#include "net_http/io.h"

#include "shims.h"
#include "wire/http/head.h"

#include <ruby/encoding.h>

enum { ROOM = 16384 };

static VALUE stock(int argc, const VALUE *argv)
{
    return rb_call_super_kw(argc, argv, rb_keyword_given_p() ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS);
}

static VALUE fall_back_for_arguments(struct net_http_io *io, int argc, const VALUE *argv)
{
    io->library->fast--;
    io->library->fallbacks[HTTP_FALLBACK_ARGUMENTS]++;
    return stock(argc, argv);
}

/*
 * call-seq: io.read(length, destination = "".b, ignore_eof = false) -> destination
 *
 * Appends the next +length+ bytes to +destination+ with <<. Receives directly into a String. Raises EOFError if there
 * are fewer bytes and +ignore_eof+ is false, Net::ReadTimeout.
 */
static VALUE buffered_read(int argc, VALUE *argv, VALUE self)
{
    struct net_http_io io;
    if (!net_http_io_open(&io, self)) return stock(argc, argv);
    if (argc < 1 || argc > 3 || !FIXNUM_P(argv[0]) || FIX2LONG(argv[0]) < 0)
        return fall_back_for_arguments(&io, argc, argv);
    io.inflated = true; // the library's Inflater reads in this way
    VALUE destination = argc > 1 ? argv[1] : rb_str_buf_new(0);
    bool complete = net_http_io_read(&io, (uint64_t)FIX2LONG(argv[0]), destination);
    if (!complete && !(argc > 2 && RTEST(argv[2]))) net_http_raise_eof();
    return destination;
}

/*
 * call-seq: io.read_all(destination = "".b) -> destination
 *
 * Appends everything up to the end of the file to +destination+ with <<.
 */
static VALUE buffered_read_all(int argc, VALUE *argv, VALUE self)
{
    struct net_http_io io;
    if (!net_http_io_open(&io, self)) return stock(argc, argv);
    if (argc > 1) return fall_back_for_arguments(&io, argc, argv);
    io.inflated = true;
    VALUE destination = argc > 0 ? argv[0] : rb_str_buf_new(0);
    net_http_io_read(&io, UINT64_MAX, destination);
    return destination;
}

static VALUE buffered_take(struct net_http_io *io, size_t length)
{
    VALUE taken = rb_str_buf_new((long)length);
    struct net_http_pending pending = net_http_io_pending(io);
    memcpy(RSTRING_PTR(taken), pending.at, length);
    rb_str_set_len(taken, (long)length);
    net_http_io_consume(io, length);
    return taken;
}

static void check_limit(const struct net_http_io *io, size_t length, size_t limit)
{
    if (length <= limit) return;
    rb_raise(io->library->read_limit_exceeded, "exceeded the %zu byte read limit", limit);
}

// Reads up to the terminator, or up to the end of the file with ignore_eof.
static VALUE read_until(struct net_http_io *io, const char *terminator, size_t width, bool ignore_eof, size_t limit)
{
    size_t seen = 0; // bytes at which the terminator cannot begin
    for (;;) {
        struct net_http_pending pending = net_http_io_pending(io);
        const uint8_t *found =
            seen < pending.length ? memmem(pending.at + seen, pending.length - seen, terminator, width) : NULL;
        if (found) {
            size_t length = (size_t)(found - pending.at) + width;
            check_limit(io, length, limit);
            return buffered_take(io, length);
        }
        check_limit(io, pending.length, limit);
        seen = pending.length >= width ? pending.length - width + 1 : 0;
        if (net_http_io_fill(io, ROOM)) continue;
        if (!ignore_eof) net_http_raise_eof();
        return buffered_take(io, net_http_io_pending(io).length);
    }
}

// The limit; SIZE_MAX without one, 0 if only stock can interpret the options.
static size_t limit_of(const struct net_http_io *io, VALUE options)
{
    VALUE limit = rb_hash_lookup2(options, ID2SYM(id_limit), Qundef);
    if (limit == Qundef || RHASH_SIZE(options) != 1 || !io->library->read_limit_exceeded) return 0;
    if (NIL_P(limit)) return SIZE_MAX;
    return FIXNUM_P(limit) && FIX2LONG(limit) > 0 ? (size_t)FIX2LONG(limit) : 0;
}

/*
 * call-seq: io.readuntil(terminator, ignore_eof = false, limit: nil) -> String
 *
 * Reads up to and including the terminator. Raises EOFError if there is none and +ignore_eof+ is false,
 * Net::ReadLimitExceeded where net-protocol has it, Net::ReadTimeout.
 */
static VALUE buffered_readuntil(int argc, VALUE *argv, VALUE self)
{
    struct net_http_io io;
    if (!net_http_io_open(&io, self)) return stock(argc, argv);
    size_t limit = SIZE_MAX;
    int positional = argc;
    if (rb_keyword_given_p()) limit = limit_of(&io, argv[--positional]);
    if (limit == 0 || positional < 1 || positional > 2 || !RB_TYPE_P(argv[0], T_STRING) || RSTRING_LEN(argv[0]) == 0 ||
        !rb_enc_str_asciionly_p(argv[0])) {
        return fall_back_for_arguments(&io, argc, argv);
    }
    VALUE terminator = rb_str_new_frozen(argv[0]);
    VALUE line = read_until(&io, RSTRING_PTR(terminator), (size_t)RSTRING_LEN(terminator),
                            positional > 1 && RTEST(argv[1]), limit);
    RB_GC_GUARD(terminator);
    return line;
}

/*
 * call-seq: io.readline -> String
 *
 * Reads the next line, without its end.
 */
static VALUE buffered_readline(VALUE self)
{
    struct net_http_io io;
    if (!net_http_io_open(&io, self)) return stock(0, NULL);
    VALUE line = read_until(&io, "\n", 1, false, SIZE_MAX);
    rb_str_set_len(line, (long)wire_http_chopped((const uint8_t *)RSTRING_PTR(line), (size_t)RSTRING_LEN(line)));
    return line;
}

// rbuf_fill, private: for code that calls it directly.
static VALUE buffered_rbuf_fill(VALUE self)
{
    struct net_http_io io;
    if (!net_http_io_open(&io, self)) return stock(0, NULL);
    if (!net_http_io_fill(&io, ROOM)) net_http_raise_eof();
    return Qnil;
}

/*
 * call-seq: io.write(*strings) -> Integer
 *
 * Sends all strings, in one system call if the socket takes them. Returns the number of bytes. Raises
 * Net::WriteTimeout.
 */
static VALUE buffered_write(int argc, VALUE *argv, VALUE self)
{
    struct net_http_io io;
    if (!net_http_io_open(&io, self)) return stock(argc, argv);
    for (int i = 0; i < argc; i++) {
        if (!RB_TYPE_P(argv[i], T_STRING)) return fall_back_for_arguments(&io, argc, argv);
    }
    return SIZET2NUM(net_http_io_write(&io, argc, argv));
}

/*
 * call-seq: io.eof? -> true or false
 *
 * Returns whether the peer has closed the connection. Stock fills a hidden buffer of the socket to find out, and with
 * TLS 1.3 waits without limit if only a session ticket has come. This method leaves every byte to be read. It waits,
 * for read_timeout at most, only if nothing at all has come.
 */
static VALUE buffered_eof(VALUE self)
{
    struct net_http_io io;
    if (!net_http_io_open(&io, self)) return stock(0, NULL);
    for (;;) {
        int ended = net_http_io_ended(&io);
        if (ended >= 0) return ended ? Qtrue : Qfalse;
        if (io.tls) return Qfalse;
        if (!net_http_io_wait(&io, RB_WAITFD_IN, rb_attr_get(self, rb_intern("@read_timeout")))) return Qfalse;
    }
}

void net_http_buffered_define(VALUE klass)
{
    net_http_io_know_sockets();
    rb_define_method(klass, "read", buffered_read, -1);
    rb_define_method(klass, "read_all", buffered_read_all, -1);
    rb_define_method(klass, "readuntil", buffered_readuntil, -1);
    rb_define_method(klass, "readline", buffered_readline, 0);
    rb_define_private_method(klass, "rbuf_fill", buffered_rbuf_fill, 0);
    rb_define_method(klass, "write", buffered_write, -1);
    rb_define_method(klass, "<<", buffered_write, -1);
    rb_define_method(klass, "eof?", buffered_eof, 0);
}
