// Parses a response's head in @rbuf, directly into the Hash of Net::HTTPHeader.
#include "net_http/io.h"
#include "net_http/keep_alive.h"

#include "wire/http/head.h"

#include <ruby/encoding.h>

enum { ROOM = 16384 };

// Reads lines. Consumes them when more bytes must be received, before code of the library or the program runs, which
// may raise or read on, and at the end.
struct reader {
    struct net_http_io *io;
    size_t at;
    size_t limit; // of a line, and of all fields
};

static void head_settle(struct reader *reader)
{
    net_http_io_consume(reader->io, reader->at);
    reader->at = 0;
}

// The next line, with its "\n" unless the file ends first. Points into @rbuf: valid until anything else runs.
static struct wire_http_span net_http_next_line(struct reader *reader, bool ignore_eof)
{
    size_t seen = 0;
    for (;;) {
        struct net_http_pending pending = net_http_io_pending(reader->io);
        const uint8_t *from = pending.at + reader->at;
        size_t length = pending.length - reader->at;
        const uint8_t *end = length > seen ? memchr(from + seen, '\n', length - seen) : NULL;
        if (end) length = (size_t)(end - from) + 1;
        if (length > reader->limit) {
            head_settle(reader);
            net_http_raise_long_line(reader->io, reader->limit);
        }
        if (end) {
            reader->at += length;
            return (struct wire_http_span){from, length};
        }
        seen = length;
        head_settle(reader);
        if (net_http_io_fill(reader->io, ROOM)) continue;
        if (!ignore_eof) net_http_raise_eof();
        pending = net_http_io_pending(reader->io);
        reader->at = pending.length;
        return (struct wire_http_span){pending.at, pending.length};
    }
}

static VALUE string_of(struct wire_http_span span)
{
    return span.at ? rb_str_new((const char *)span.at, (long)span.length) : Qnil;
}

// Header names are few: one frozen String each, as Hash makes of its keys. Not inlined: a fiber that waits for a line
// must not keep room for a name on its stack.
__attribute__((noinline)) static VALUE name_of(struct wire_http_span name)
{
    char lower[HTTP_NAME];
    for (size_t i = 0; i < name.length; i++) {
        uint8_t byte = name.at[i];
        lower[i] = (char)(byte >= 'A' && byte <= 'Z' ? byte + 0x20 : byte);
    }
    return rb_enc_interned_str(lower, (long)name.length, rb_ascii8bit_encoding());
}

static VALUE response_class(struct net_http_library *library, VALUE code)
{
    VALUE klass = rb_hash_lookup(library->code_to_object, code);
    if (!NIL_P(klass)) return klass;
    klass = rb_hash_lookup(library->code_class_to_object, rb_str_subseq(code, 0, 1));
    return NIL_P(klass) ? library->unknown_response : klass;
}

static VALUE new_response(struct reader *reader, VALUE version, VALUE code, VALUE message, VALUE *header)
{
    struct net_http_library *library = reader->io->library;
    VALUE klass = response_class(library, code);
    if (!net_http_library_knows_responses(library, klass)) {
        head_settle(reader);
        VALUE arguments[3] = {version, code, message};
        VALUE response = rb_class_new_instance(3, arguments, klass);
        *header = rb_attr_get(response, iv_header);
        return response;
    }
    VALUE response = rb_obj_alloc(klass);
    *header = rb_hash_new();
    VALUE template = library->response_template;
    for (long i = 0; i < RARRAY_LEN(template); i += 2) {
        ID name = rb_sym2id(rb_ary_entry(template, i));
        VALUE value = rb_ary_entry(template, i + 1);
        if (name == iv_http_version) value = version;
        if (name == iv_code) value = code;
        if (name == iv_message) value = message;
        if (name == iv_header) value = *header;
        rb_ivar_set(response, name, value);
    }
    return response;
}

// A field that may continue on the next line.
struct open_field {
    VALUE name; // 0: no field
    VALUE value;
    bool plain;
};

static void add_field(struct reader *reader, VALUE response, VALUE header, struct open_field *field)
{
    if (!field->name) return;
    if (!field->plain || !RB_TYPE_P(header, T_HASH) || RSTRING_LEN(field->value) > HTTP_VALUE) {
        head_settle(reader);
        rb_funcall(response, id_add_field, 2, field->name, field->value);
    } else {
        VALUE values = rb_hash_lookup(header, field->name);
        if (RB_TYPE_P(values, T_ARRAY)) {
            rb_ary_push(values, field->value);
        } else {
            rb_hash_aset(header, field->name, rb_ary_new_from_values(1, &field->value));
        }
    }
    field->name = 0;
}

static void read_fields(struct reader *reader, VALUE response, VALUE header)
{
    struct net_http_library *library = reader->io->library;
    struct open_field field = {0};
    size_t left = reader->limit;
    bool takes_all = net_http_library_takes_fields(library);
    for (;;) {
        struct wire_http_span line = net_http_next_line(reader, true);
        if (line.length > left) {
            head_settle(reader);
            rb_raise(library->bad_response, "response header too large");
        }
        left -= line.length;
        struct wire_http_field found;
        switch (wire_http_header_line(line.at, line.at + line.length, library->blank_ends, field.name != 0, &found)) {
        case HTTP_LINE_END: add_field(reader, response, header, &field); return;
        case HTTP_LINE_CONTINUATION:
            if (found.value.length == 0 && library->folds_skip_empty) break;
            if (RSTRING_LEN(field.value) > 0) rb_str_cat(field.value, " ", 1);
            rb_str_cat(field.value, (const char *)found.value.at, (long)found.value.length);
            field.plain = field.plain && found.plain;
            break;
        case HTTP_LINE_FIELD: {
            struct open_field next = {.plain = found.plain && takes_all};
            next.value = string_of(found.value);
            next.name = found.plain ? name_of(found.name) : string_of(found.name);
            add_field(reader, response, header, &field);
            field = next;
            break;
        }
        case HTTP_LINE_INVALID:
            add_field(reader, response, header, &field);
            head_settle(reader);
            rb_raise(library->bad_response, "wrong header line format");
        }
    }
}

/*
 * call-seq: Net::HTTPResponse.read_new(socket) -> Net::HTTPResponse
 *
 * Reads a status line and the header fields. Raises Net::HTTPBadResponse, also for a head that is larger than the
 * library's limit (1 MiB if it has none), EOFError, Net::ReadTimeout.
 */
static VALUE read_new(VALUE self, VALUE socket)
{
    struct net_http_library *library = net_http_library_of_buffered(CLASS_OF(socket));
    struct net_http_io io;
    size_t limit;
    if (!library || !(library->unpatched & HTTP_UNPATCHED_RESPONSE) || self != library->response ||
        !net_http_library_head_limit(library, &limit) || !net_http_io_open(&io, socket)) {
        return net_http_call_original(self, id_read_new, 1, &socket, RB_NO_KEYWORDS);
    }
    if (net_http_io_pending(&io).length) net_http_io_use_budget(&io, 0); // any number of interim responses may be there
    struct reader reader = {.io = &io, .limit = limit};
    struct wire_http_span line = net_http_next_line(&reader, false);
    net_http_exchange_answered(socket);
    size_t length = wire_http_chopped(line.at, line.length);
    struct wire_http_status status;
    if (!wire_http_status_line(line.at, line.at + length, &status)) {
        VALUE text = rb_str_dump(rb_str_new((const char *)line.at, (long)length));
        head_settle(&reader);
        rb_raise(library->bad_response, "wrong status line: %" PRIsVALUE, text);
    }
    VALUE version = string_of(status.version), code = string_of(status.code), message = string_of(status.message);
    VALUE header;
    VALUE response = new_response(&reader, version, code, message, &header);
    read_fields(&reader, response, header);
    head_settle(&reader);
    return response;
}

void net_http_head_define(VALUE singleton_of_response)
{
    rb_define_method(singleton_of_response, "read_new", read_new, 1);
}
