// Reads a response's body: of known length, chunked, or up to the end of the file. A body to be inflated is left to
// stock's Inflater, on top of the fast socket.
#include "net_http/io.h"
#include "net_http/keep_alive.h"

#include "os/budget.h"
#include "net_http/string.h"
#include "wire/http/head.h"

enum { ROOM = 65536 };

static VALUE content_length, content_range, content_encoding, transfer_encoding;

// Small chunks come through the buffer, by the thousand.
static void fill(struct net_http_io *io)
{
    if (!net_http_io_fill(io, ROOM)) net_http_raise_eof();
}

// The next line without its end; valid until anything else runs. `whole`: the number of bytes to consume.
static struct wire_http_span chunk_line(struct net_http_io *io, size_t limit, size_t *whole)
{
    size_t seen = 0;
    for (;;) {
        struct net_http_pending pending = net_http_io_pending(io);
        const uint8_t *end = pending.length > seen ? memchr(pending.at + seen, '\n', pending.length - seen) : NULL;
        *whole = end ? (size_t)(end - pending.at) + 1 : pending.length;
        if (*whole > limit) net_http_raise_long_line(io, limit);
        if (end) return (struct wire_http_span){pending.at, wire_http_chopped(pending.at, *whole)};
        seen = pending.length;
        fill(io);
    }
}

// Skips the two bytes after a chunk, whatever they are.
static void skip_end_of_chunk(struct net_http_io *io)
{
    while (net_http_io_pending(io).length < 2)
        fill(io);
    net_http_io_consume(io, 2);
}

struct chunk {
    struct net_http_io *io;
    uint64_t length;
    VALUE destination;
    bool complete;
};

static VALUE read_chunk(VALUE argument)
{
    struct chunk *chunk = (struct chunk *)argument;
    if (!net_http_io_read(chunk->io, chunk->length, chunk->destination)) net_http_raise_eof();
    chunk->complete = true;
    return Qnil;
}

// Returns whether reading failed. The current rb_errinfo may also be a throw or a kill, which is no Ruby object.
static bool is_of_reading(const struct net_http_io *io, VALUE error)
{
    if (SPECIAL_CONST_P(error) || RB_BUILTIN_TYPE(error) == RUBY_T_IMEMO) return false;
    return RTEST(rb_obj_is_kind_of(error, rb_eIOError)) || RTEST(rb_obj_is_kind_of(error, rb_eSystemCallError)) ||
           (io->tls && RTEST(rb_obj_is_kind_of(error, io->library->ssl_error)));
}

static VALUE after_chunk(VALUE argument)
{
    const struct chunk *chunk = (const struct chunk *)argument;
    struct net_http_io *io = chunk->io;
    if (chunk->complete) return Qnil;
    if (io->calling) {
        rb_ivar_set(io->self, iv_end_owed, Qtrue);
    } else if (is_of_reading(io, rb_errinfo())) {
        skip_end_of_chunk(io);
    }
    return Qnil;
}

// Stock skips the end of a chunk even if reading the chunk failed, and then reports another error: the end of the file
// instead of a reset, or a TLS error. Stock does so, too, when the caller's block is left (by break, throw, or an
// exception), so that a later read, by the library or by a second read_body, continues after the chunk. Waiting for
// these two bytes may take read_timeout, which would delay a cancellation. So this function leaves them to the next
// reader.
static void read_chunk_and_end(struct net_http_io *io, uint64_t length, VALUE destination)
{
    struct chunk chunk = {.io = io, .length = length, .destination = destination};
    rb_ensure(read_chunk, (VALUE)&chunk, after_chunk, (VALUE)&chunk);
    skip_end_of_chunk(io);
}

static void skip_owed_end(struct net_http_io *io)
{
    if (!RTEST(rb_attr_get(io->self, iv_end_owed))) return;
    rb_ivar_set(io->self, iv_end_owed, Qfalse);
    skip_end_of_chunk(io);
}

// rb_raise cannot print every byte.
static void raise_bad_response(const struct net_http_io *io, VALUE message)
{
    rb_exc_raise(rb_exc_new_str(io->library->bad_response, message));
}

static void read_chunked(struct net_http_io *io, size_t limit, VALUE destination)
{
    size_t whole;
    struct wire_http_span line;
    skip_owed_end(io);
    for (;;) {
        uint64_t size;
        line = chunk_line(io, limit, &whole);
        if (!wire_http_chunk_size(line.at, line.at + line.length, &size)) {
            VALUE text = rb_str_new((const char *)line.at, (long)line.length);
            net_http_io_consume(io, whole);
            raise_bad_response(io, rb_str_append(rb_utf8_str_new_cstr("wrong chunk size line: "), text));
        }
        net_http_io_consume(io, whole);
        if (size == 0) break;
        read_chunk_and_end(io, size == UINT64_MAX ? size - 1 : size, destination);
        budget_spend(0);
    }
    do {
        budget_spend(0);
        line = chunk_line(io, limit, &whole);
        net_http_io_consume(io, whole);
    } while (line.length);
    if (RB_TYPE_P(destination, T_STRING) && !OBJ_FROZEN(destination)) net_http_string_trim(destination);
}

// The field's single value; nil if the field is absent, Qundef if it has several values.
static VALUE net_http_value_of(VALUE header, VALUE name)
{
    VALUE values = rb_hash_lookup(header, name);
    if (NIL_P(values)) return Qnil;
    if (!RB_TYPE_P(values, T_ARRAY) || RARRAY_LEN(values) != 1) return Qundef;
    VALUE value = rb_ary_entry(values, 0);
    return RB_TYPE_P(value, T_STRING) ? value : Qundef;
}

enum framing { CHUNKED, SIZED, TO_THE_END, FOR_STOCK };

static enum framing framing_of(VALUE self, uint64_t *length)
{
    VALUE header = rb_attr_get(self, iv_header);
    if (!RB_TYPE_P(header, T_HASH) || !NIL_P(rb_hash_lookup(header, content_range))) return FOR_STOCK;
    if (RTEST(rb_attr_get(self, iv_decode_content)) && !NIL_P(rb_hash_lookup(header, content_encoding)))
        return FOR_STOCK;
    VALUE coding = net_http_value_of(header, transfer_encoding);
    if (coding == Qundef) return FOR_STOCK;
    if (!NIL_P(coding)) {
        return RSTRING_LEN(coding) == 7 && strncasecmp(RSTRING_PTR(coding), "chunked", 7) == 0 ? CHUNKED : FOR_STOCK;
    }
    VALUE digits = net_http_value_of(header, content_length);
    if (NIL_P(digits)) return TO_THE_END;
    if (digits == Qundef) return FOR_STOCK;
    const uint8_t *at = (const uint8_t *)RSTRING_PTR(digits);
    return wire_http_plain_number(at, at + RSTRING_LEN(digits), length) ? SIZED : FOR_STOCK;
}

// read_body_0(destination), private: reads the body to its destination.
static VALUE read_body_0(VALUE self, VALUE destination)
{
    VALUE socket = rb_attr_get(self, iv_socket);
    struct net_http_library *library = net_http_library_of_buffered(CLASS_OF(socket));
    uint64_t length = 0;
    enum framing framing = FOR_STOCK;
    if (library && library->unpatched & HTTP_UNPATCHED_RESPONSE &&
        net_http_library_knows_responses(library, CLASS_OF(self)))
        framing = framing_of(self, &length);
    size_t limit = 0;
    if (framing == CHUNKED && !net_http_library_head_limit(library, &limit)) framing = FOR_STOCK;
    struct net_http_io io;
    VALUE result = Qnil;
    if (framing == FOR_STOCK || !net_http_io_open(&io, socket)) {
        result = net_http_call_original(self, id_read_body_0, 1, &destination, RB_NO_KEYWORDS);
    } else if (framing == CHUNKED) {
        read_chunked(&io, limit, destination);
    } else if (framing == TO_THE_END) {
        net_http_io_read(&io, UINT64_MAX, destination);
    } else if (!net_http_io_read(&io, length, destination)) {
        bool strict = RTEST(rb_ivar_defined(self, iv_ignore_eof)) && !RTEST(rb_attr_get(self, iv_ignore_eof));
        if (strict) net_http_raise_eof();
    }
    net_http_exchange_read(socket, self);
    return result;
}

void net_http_body_define(VALUE response)
{
    rb_define_private_method(response, "read_body_0", read_body_0, 1);
    if (content_length) return;
    content_range = net_http_constant("content-range");
    content_encoding = net_http_constant("content-encoding");
    transfer_encoding = net_http_constant("transfer-encoding");
    content_length = net_http_constant("content-length");
}
