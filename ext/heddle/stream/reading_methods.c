// The reading methods of Heddle::Stream. Their results are those of TCPSocket's methods; Strings are binary.
#include "stream/internals.h"

#include "shims.h"

#include <errno.h>
#include <poll.h>
#include <ruby/encoding.h>
#include <string.h>

static ID id_chomp, id_limit, id_exception;
static VALUE sym_wait_readable, sym_wait_writable;

// Call it after converting all arguments, which may run any Ruby code.
static struct stream *reading_methods_begin(VALUE self)
{
    struct stream *stream = stream_get(self);
    stream_enter(stream, SIDE_READ);
    return stream;
}

static size_t length_of(VALUE number)
{
    long length = NUM2LONG(number);
    if (length < 0) rb_raise(rb_eArgError, "negative length %ld given", length);
    return (size_t)length;
}

// The String argument at that place to read into, or nil.
static VALUE given_string(int argc, VALUE *argv, int place)
{
    if (argc <= place || NIL_P(argv[place])) return Qnil;
    return StringValue(argv[place]);
}

// The caller's own String, emptied but with its memory kept; or a new String, which no other code knows until it is
// returned.
static VALUE destination(VALUE given, size_t capacity)
{
    if (NIL_P(given)) return stream_hidden_string(capacity < BUFFER_KEEP ? capacity : BUFFER_KEEP);
    rb_str_modify(given);
    rb_str_set_len(given, 0);
    rb_enc_associate(given, rb_ascii8bit_encoding());
    return given;
}

static VALUE hand_out(VALUE string, VALUE given, size_t length)
{
    return NIL_P(given) ? stream_reveal(string, length) : string;
}

static VALUE take_buffered(struct stream *stream, size_t length)
{
    stream_served(stream);
    VALUE string = rb_str_new((const char *)buffer_front(&stream->in), (long)length);
    if (length) buffer_consume(&stream->in, length);
    return string;
}

RBIMPL_ATTR_NORETURN()
static void raise_end_of_file(void)
{
    rb_raise(rb_eEOFError, "end of file reached");
}

/*
 * call-seq: stream.read(length = nil, buffer = nil) -> String or nil
 *
 * Reads the next +length+ bytes, fewer only if the peer closes first; nil at the end. Without a length, reads
 * everything until the end. Works like IO#read; long reads are received directly into their String.
 *
 * Raises Heddle::DeadlineExceeded, Errno::ECONNRESET and similar errors; the stream is then closed.
 */
static VALUE read_bytes(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 2);
    size_t count = argc > 0 && !NIL_P(argv[0]) ? length_of(argv[0]) : SIZE_MAX;
    VALUE given = given_string(argc, argv, 1);
    struct stream *stream = reading_methods_begin(self);
    if (count == 0) return NIL_P(given) ? rb_str_new(NULL, 0) : destination(given, 0);
    if (NIL_P(given) && count <= buffer_used(&stream->in)) return take_buffered(stream, count);
    VALUE string = destination(given, count == SIZE_MAX ? 0 : count);
    struct stream_limit limit = stream_read_limit(stream);
    size_t arrived = stream_read_string(stream, string, 0, count, &limit);
    if (arrived == 0 && count != SIZE_MAX) return Qnil;
    return hand_out(string, given, arrived);
}

/*
 * call-seq: stream.read_into(string, length) -> string
 *
 * Reads exactly +length+ bytes, which replace the contents of +string+. The String's memory is reused.
 *
 * Raises Heddle::UnexpectedEnd if the peer closes first, and the errors of #read.
 */
static VALUE read_into(VALUE self, VALUE string, VALUE length)
{
    size_t count = length_of(length);
    StringValue(string);
    struct stream *stream = reading_methods_begin(self);
    string = destination(string, count);
    struct stream_limit limit = stream_read_limit(stream);
    if (stream_read_string(stream, string, 0, count, &limit) < count) stream_end_early(stream);
    return string;
}

/*
 * call-seq:
 *   stream.readpartial(length, buffer = nil) -> String
 *   stream.sysread(length, buffer = nil) -> String
 *
 * Reads the available bytes, at most +length+; waits if there are none. Raises EOFError at the end.
 */
static VALUE readpartial(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 1, 2);
    size_t most = length_of(argv[0]);
    VALUE given = given_string(argc, argv, 1);
    struct stream *stream = reading_methods_begin(self);
    if (most == 0) return NIL_P(given) ? rb_str_new(NULL, 0) : destination(given, 0);
    size_t used = buffer_used(&stream->in);
    if (used && NIL_P(given)) return take_buffered(stream, used < most ? used : most);
    VALUE string = destination(given, most);
    size_t count = stream_read_some(stream, string, most);
    if (count == 0) raise_end_of_file();
    return hand_out(string, given, count);
}

static bool wants_exception(VALUE options)
{
    return NIL_P(options) || rb_hash_lookup2(options, ID2SYM(id_exception), Qtrue) != Qfalse;
}

/*
 * call-seq: stream.read_nonblock(length, buffer = nil, exception: true) -> String, :wait_readable or nil
 *
 * Like #readpartial, but never waits. If no bytes are there, raises IO::EAGAINWaitReadable, or with <tt>exception:
 * false</tt> returns <tt>:wait_readable</tt>, and nil at the end.
 */
static VALUE read_nonblock(int argc, VALUE *argv, VALUE self)
{
    VALUE length, given, options;
    rb_scan_args(argc, argv, "11:", &length, &given, &options);
    size_t most = length_of(length);
    given = given_string(1, &given, 0);
    struct stream *stream = reading_methods_begin(self);
    if (most == 0) return hand_out(destination(given, 0), given, 0);
    if (!buffer_used(&stream->in) && stream->state != STREAM_ENDED) {
        struct stream_limit limit = {.span = DEADLINE_NEVER, .side = SIDE_READ};
        stream_check_time(stream, SIDE_READ);
        stream_spend(stream, SIDE_READ, &limit);
        stream_send_first(stream);
        ssize_t count = stream_receive(stream, NULL, 0, most < BUFFER_KEEP ? most : BUFFER_KEEP);
        if (count == -EAGAIN) {
            bool writable = stream->tls_wants[SIDE_READ] == POLLOUT;
            if (!wants_exception(options)) return writable ? sym_wait_writable : sym_wait_readable;
            rb_readwrite_syserr_fail(writable ? RB_IO_WAIT_WRITABLE : RB_IO_WAIT_READABLE, EAGAIN, "read would block");
        }
        if (count < 0) stream_fail(stream, (int)-count, "reading from");
    }
    VALUE string = destination(given, most); // unchanged as long as no bytes are there, as by IO#read_nonblock
    size_t used = buffer_used(&stream->in);
    if (used == 0 && !wants_exception(options)) return Qnil;
    if (used == 0) raise_end_of_file();
    size_t count = used < most ? used : most;
    rb_str_cat(string, (const char *)buffer_front(&stream->in), (long)count);
    buffer_consume(&stream->in, count);
    return hand_out(string, given, count);
}

// ---- lines

struct line_options {
    VALUE separator; // or nil
    size_t most;     // most bytes of a line; the rest comes with the next call; or SIZE_MAX
    size_t longest;  // a longer line is an error
    bool chomp;
    bool paragraphs;
};

static struct line_options parse_line_options(int argc, VALUE *argv, const struct stream *stream)
{
    struct line_options line = {.separator = rb_rs, .most = SIZE_MAX, .longest = stream->buffer_limit};
    VALUE first, second, options, values[2] = {Qundef, Qundef};
    int count = rb_scan_args(argc, argv, "02:", &first, &second, &options);
    if (count == 1 && !NIL_P(first) && !RB_TYPE_P(first, T_STRING) && !rb_respond_to(first, rb_intern("to_str"))) {
        second = first;
    } else if (count > 0) {
        line.separator = first;
    }
    if (!NIL_P(second) && NUM2LONG(second) >= 0) line.most = (size_t)NUM2LONG(second);
    if (!NIL_P(options)) {
        ID names[2] = {id_chomp, id_limit};
        rb_get_kwargs(options, names, 0, 2, values);
        line.chomp = values[0] != Qundef && RTEST(values[0]);
        if (values[1] != Qundef && !NIL_P(values[1])) {
            size_t limit = length_of(values[1]);
            if (limit < line.longest) line.longest = limit;
        }
    }
    if (!NIL_P(line.separator)) {
        StringValue(line.separator);
        line.separator = rb_str_new_frozen(line.separator); // no other code can change it during a wait
        line.paragraphs = RSTRING_LEN(line.separator) == 0;
        if (line.paragraphs) line.separator = rb_str_new_cstr("\n\n");
    }
    return line;
}

static void skip_newlines(struct stream *stream, struct stream_limit *limit)
{
    for (;;) {
        while (buffer_used(&stream->in) && *buffer_front(&stream->in) == '\n')
            buffer_consume(&stream->in, 1);
        if (buffer_used(&stream->in) || !stream_fill(stream, 0, limit)) return;
    }
}

// The number of bytes in the buffer that form the next line; 0 at the end.
static size_t find_line(struct stream *stream, const struct line_options *line, struct stream_limit *limit, bool *whole)
{
    const char *separator = RSTRING_PTR(line->separator);
    size_t width = (size_t)RSTRING_LEN(line->separator);
    size_t seen = 0;
    *whole = false;
    for (;;) {
        size_t used = buffer_used(&stream->in);
        size_t most = line->most < line->longest ? line->most : line->longest;
        size_t looked_at = used < most ? used : most;
        size_t from = seen < width ? 0 : seen - width + 1;
        const uint8_t *front = buffer_front(&stream->in);
        const uint8_t *found = NULL;
        if (looked_at >= from + width) {
            found = width == 1 ? memchr(front + from, separator[0], looked_at - from)
                               : memmem(front + from, looked_at - from, separator, width);
        }
        if (found) {
            *whole = true;
            return (size_t)(found - front) + width;
        }
        if (used >= line->most) return line->most;
        if (used >= line->longest) stream_refuse_more(stream, line->longest);
        seen = looked_at;
        if (!stream_fill(stream, 0, limit)) return buffer_used(&stream->in);
        separator = RSTRING_PTR(line->separator);
    }
}

static size_t chomped(const struct stream *stream, const struct line_options *line, size_t length)
{
    const uint8_t *front = buffer_front(&stream->in);
    length -= (size_t)RSTRING_LEN(line->separator);
    if (RSTRING_LEN(line->separator) == 1 && RSTRING_PTR(line->separator)[0] == '\n' && length &&
        front[length - 1] == '\r')
        length--;
    return length;
}

static VALUE reading_methods_next_line(struct stream *stream, const struct line_options *line)
{
    struct stream_limit limit = stream_read_limit(stream);
    if (line->most == 0) return rb_str_new(NULL, 0);
    if (NIL_P(line->separator)) {
        VALUE all = stream_hidden_string(0);
        size_t arrived = stream_read_string(stream, all, 0, line->most, &limit);
        return arrived ? stream_reveal(all, arrived) : Qnil;
    }
    if (line->paragraphs) skip_newlines(stream, &limit);
    bool whole;
    size_t length = find_line(stream, line, &limit, &whole);
    if (length == 0) return Qnil;
    size_t kept = line->chomp && whole ? chomped(stream, line, length) : length;
    VALUE string = rb_str_new((const char *)buffer_front(&stream->in), (long)kept);
    buffer_consume(&stream->in, length);
    if (line->paragraphs) { // newlines that have arrived; the next call skips the rest
        while (buffer_used(&stream->in) && *buffer_front(&stream->in) == '\n')
            buffer_consume(&stream->in, 1);
    }
    stream_served(stream);
    stream->statistics.lines++;
    return string;
}

/*
 * call-seq: stream.gets(separator = $/, most = nil, chomp: false, limit: buffer_limit) -> String or nil
 *
 * Reads the next line, or nil at the end, like IO#gets. The whole line must arrive within the read timeout. For a line
 * longer than +most+ bytes, the next call returns the rest. A line longer than +limit+ bytes closes the stream.
 *
 * Raises Heddle::DeadlineExceeded, Heddle::BufferLimitExceeded.
 */
static VALUE gets_line(int argc, VALUE *argv, VALUE self)
{
    struct line_options line = parse_line_options(argc, argv, stream_get(self));
    struct stream *stream = reading_methods_begin(self);
    VALUE string = reading_methods_next_line(stream, &line);
    rb_lastline_set(string);
    RB_GC_GUARD(line.separator);
    return string;
}

/*
 * call-seq: stream.lineno -> Integer
 *
 * The number of lines read so far.
 */
static VALUE lineno(VALUE self)
{
    return ULL2NUM(stream_get(self)->statistics.lines);
}

// ---- other methods

/*
 * call-seq: stream.getbyte -> Integer or nil
 *
 * Reads the next byte; nil at the end.
 */
static VALUE getbyte(VALUE self)
{
    struct stream *stream = reading_methods_begin(self);
    struct stream_limit limit = stream_read_limit(stream);
    if (!buffer_used(&stream->in) && !stream_fill(stream, 0, &limit)) return Qnil;
    stream_served(stream);
    VALUE byte = INT2FIX(*buffer_front(&stream->in));
    buffer_consume(&stream->in, 1);
    return byte;
}

/*
 * call-seq: stream.unread(string) -> nil
 *
 * Pushes bytes back: the next read returns them first.
 */
static VALUE unread(VALUE self, VALUE string)
{
    StringValue(string);
    struct stream *stream = reading_methods_begin(self);
    struct stream_buffer whole = {0};
    buffer_append(&whole, RSTRING_PTR(string), (size_t)RSTRING_LEN(string));
    buffer_append(&whole, buffer_front(&stream->in), buffer_used(&stream->in));
    buffer_release(&stream->in);
    stream->in = whole;
    RB_GC_GUARD(string);
    return Qnil;
}

/*
 * call-seq: stream.peek(length) -> String
 *
 * Returns the next +length+ bytes, fewer if the peer closes first, without consuming them.
 */
static VALUE peek(VALUE self, VALUE length)
{
    size_t count = length_of(length);
    struct stream *stream = reading_methods_begin(self);
    if (count > stream->buffer_limit)
        rb_raise(rb_eArgError, "a stream holds at most %zu bytes (buffer_limit:), not %zu", stream->buffer_limit,
                 count);
    struct stream_limit limit = stream_read_limit(stream);
    while (buffer_used(&stream->in) < count) {
        if (!stream_fill(stream, count - buffer_used(&stream->in), &limit)) break;
    }
    size_t used = buffer_used(&stream->in);
    return rb_str_new((const char *)buffer_front(&stream->in), (long)(used < count ? used : count));
}

/*
 * call-seq: stream.skip(length) -> self
 *
 * Skips +length+ bytes. Raises Heddle::UnexpectedEnd if there are fewer.
 */
static VALUE skip(VALUE self, VALUE length)
{
    size_t count = length_of(length);
    stream_skip(reading_methods_begin(self), count);
    return self;
}

/*
 * call-seq: stream.eof? -> true or false
 *
 * Returns whether the stream is at its end. Waits until a byte or the end has arrived.
 */
static VALUE eof_p(VALUE self)
{
    struct stream *stream = reading_methods_begin(self);
    struct stream_limit limit = stream_read_limit(stream);
    return buffer_used(&stream->in) || stream_fill(stream, 0, &limit) ? Qfalse : Qtrue;
}

/*
 * call-seq: stream.wait_readable(timeout = nil) -> self or nil
 *
 * Waits until bytes or the end can be read; returns nil if that takes more than +timeout+ seconds. An exception in this
 * wait leaves the stream unchanged, unless replies are owed. Written bytes are sent meanwhile. The time of an #exchange
 * applies; the read timeout does not.
 */
static VALUE wait_readable(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 1);
    int64_t span = deadline_span(argc ? argv[0] : Qnil);
    return stream_wait_for_more(stream_get(self), 0, span) ? self : Qnil;
}

void stream_reading_define(VALUE klass)
{
    id_chomp = rb_intern("chomp");
    id_limit = rb_intern("limit");
    id_exception = rb_intern("exception");
    sym_wait_readable = ID2SYM(rb_intern("wait_readable"));
    sym_wait_writable = ID2SYM(rb_intern("wait_writable"));
    rb_define_method(klass, "read", read_bytes, -1);
    rb_define_method(klass, "read_into", read_into, 2);
    rb_define_method(klass, "readpartial", readpartial, -1);
    rb_define_method(klass, "sysread", readpartial, -1);
    rb_define_method(klass, "read_nonblock", read_nonblock, -1);
    rb_define_method(klass, "gets", gets_line, -1);
    rb_define_method(klass, "lineno", lineno, 0);
    rb_define_method(klass, "getbyte", getbyte, 0);
    rb_define_method(klass, "unread", unread, 1);
    rb_define_method(klass, "peek", peek, 1);
    rb_define_method(klass, "skip", skip, 1);
    rb_define_method(klass, "eof?", eof_p, 0);
    rb_define_method(klass, "eof", eof_p, 0);
    rb_define_method(klass, "wait_readable", wait_readable, -1);
}
