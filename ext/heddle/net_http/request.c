// Makes requests with the fields that every request has, and writes each as one String, together with its body.
#include "net_http/io.h"

#include "net_http/upload.h"
#include "wire/http/head.h"

#include <ruby/encoding.h>

static VALUE transfer_encoding, expect, accept_encoding, range;

// ---- writing

// Subclasses and singletons of String may override upcase and downcase.
static bool is_plain(VALUE string)
{
    return !SPECIAL_CONST_P(string) && CLASS_OF(string) == rb_cString && rb_enc_str_asciionly_p(string);
}

// Almost all heads fit into the buffer. `text`: what came before what is in there; or nil.
struct head {
    VALUE text;
    size_t length;
    bool for_stock; // only stock can write it
    char buffer[1024];
};

static void head_flush(struct head *head)
{
    if (NIL_P(head->text)) head->text = rb_str_buf_new((long)(2 * sizeof head->buffer));
    rb_str_cat(head->text, head->buffer, (long)head->length);
    head->length = 0;
}

static void add_bytes(struct head *head, const void *bytes, size_t length)
{
    if (length > sizeof head->buffer - head->length) head_flush(head);
    if (length > sizeof head->buffer) {
        rb_str_cat(head->text, bytes, (long)length);
        return;
    }
    memcpy(head->buffer + head->length, bytes, length);
    head->length += length;
}

#define ADD_TEXT(head, text) add_bytes(head, text, sizeof text - 1)

static void head_add(struct head *head, VALUE string)
{
    add_bytes(head, RSTRING_PTR(string), (size_t)RSTRING_LEN(string));
}

static VALUE head_text(struct head *head)
{
    if (NIL_P(head->text)) return rb_str_new(head->buffer, (long)head->length);
    head_flush(head);
    return head->text;
}

static int add_field(VALUE name, VALUE values, VALUE argument)
{
    struct head *head = (struct head *)argument;
    head->for_stock = true;
    if (!is_plain(name) || RSTRING_LEN(name) > HTTP_NAME || !RB_TYPE_P(values, T_ARRAY)) return ST_STOP;
    uint8_t capitalized[HTTP_NAME];
    size_t length = wire_http_capitalize((const uint8_t *)RSTRING_PTR(name), (size_t)RSTRING_LEN(name), capitalized);
    add_bytes(head, capitalized, length);
    ADD_TEXT(head, ": ");
    for (long i = 0; i < RARRAY_LEN(values); i++) {
        VALUE value = rb_ary_entry(values, i);
        if (!is_plain(value)) return ST_STOP;
        if (i > 0) ADD_TEXT(head, ", ");
        head_add(head, value);
    }
    ADD_TEXT(head, "\r\n");
    head->for_stock = false;
    return ST_CONTINUE;
}

static bool has_line_end(VALUE string)
{
    return memchr(RSTRING_PTR(string), '\r', (size_t)RSTRING_LEN(string)) ||
           memchr(RSTRING_PTR(string), '\n', (size_t)RSTRING_LEN(string));
}

// Returns nil if only stock can write the head.
static VALUE head_of(VALUE self, VALUE version, VALUE path)
{
    VALUE method = rb_attr_get(self, iv_method), header = rb_attr_get(self, iv_header);
    if (!is_plain(method) || !is_plain(version) || !is_plain(path) || !RB_TYPE_P(header, T_HASH)) return Qnil;
    if (has_line_end(method) || has_line_end(version) || has_line_end(path)) return Qnil;
    struct head head;
    head.text = Qnil;
    head.length = 0;
    head.for_stock = false;
    head_add(&head, method);
    ADD_TEXT(&head, " ");
    head_add(&head, path);
    ADD_TEXT(&head, " HTTP/");
    head_add(&head, version);
    ADD_TEXT(&head, "\r\n");
    rb_hash_foreach(header, add_field, (VALUE)&head);
    ADD_TEXT(&head, "\r\n");
    return head.for_stock ? Qnil : head_text(&head);
}

// Returns whether the client waits for the server's permission before it sends the body.
static bool asks_first(VALUE self, VALUE socket)
{
    VALUE header = rb_attr_get(self, iv_header);
    return RTEST(rb_attr_get(socket, iv_continue_timeout)) &&
           (!RB_TYPE_P(header, T_HASH) || !NIL_P(rb_hash_lookup(header, expect)));
}

static void supply_content_type(VALUE self)
{
    if (rb_obj_respond_to(self, id_supply_content_type, 1)) rb_funcall(self, id_supply_content_type, 0);
}

// Returns whether the code uses aws-sdk's way to set the size of the body's pieces.
static bool asked_for_pieces(void)
{
    return !NIL_P(rb_thread_local_aref(rb_thread_current(), id_override_body_stream_chunk));
}

static VALUE send_stream(struct net_http_io *io, VALUE self, VALUE version, VALUE path,
                         const struct net_http_source *source)
{
    bool sized = RTEST(rb_funcall(self, id_content_length, 0)), chunked = RTEST(rb_funcall(self, id_chunked, 0));
    if (!sized && !chunked) return Qfalse;
    supply_content_type(self);
    VALUE head = head_of(self, version, path);
    if (NIL_P(head)) return Qfalse;
    net_http_io_write(io, 1, &head);
    if (asks_first(self, io->self)) rb_funcall(self, id_wait_for_continue, 2, io->self, version);
    net_http_upload(io, source, chunked);
    RB_GC_GUARD(head);
    return Qtrue;
}

static VALUE send_string(struct net_http_io *io, VALUE self, VALUE version, VALUE path, VALUE body)
{
    if (RTEST(body)) {
        rb_funcall(self, id_set_content_length, 1, LONG2NUM(RSTRING_LEN(body)));
        rb_funcall(self, id_delete, 1, transfer_encoding);
        supply_content_type(self);
    }
    VALUE head = head_of(self, version, path);
    if (NIL_P(head)) return Qfalse;
    VALUE parts[2] = {head, body};
    net_http_io_write(io, RTEST(body) ? 2 : 1, parts);
    RB_GC_GUARD(head);
    return Qtrue;
}

// Returns Qfalse, with nothing sent, if stock must send the request.
static VALUE send_request(VALUE self, VALUE socket, VALUE version, VALUE path)
{
    struct net_http_library *library = net_http_library_of_buffered(CLASS_OF(socket));
    if (!library || !(library->unpatched & HTTP_UNPATCHED_REQUEST)) return Qfalse;
    if (!net_http_library_knows_request(library, self)) return Qfalse;
    struct net_http_io io;
    VALUE body = rb_attr_get(self, iv_body), stream = rb_attr_get(self, iv_body_stream);
    if (RTEST(body)) {
        if (!RB_TYPE_P(body, T_STRING) || asks_first(self, socket)) return Qfalse;
    } else if (RTEST(stream)) {
        struct net_http_source source;
        if (!(library->unpatched & HTTP_UNPATCHED_UPLOAD) || asked_for_pieces() || !net_http_source_of(stream, &source))
            return Qfalse;
        return net_http_io_open(&io, socket) ? send_stream(&io, self, version, path, &source) : Qfalse;
    } else if (RTEST(rb_attr_get(self, iv_body_data))) {
        return Qfalse;
    }
    return net_http_io_open(&io, socket) ? send_string(&io, self, version, path, body) : Qfalse;
}

// exec(socket, version, path): writes the request. A String body is sent with the head, unless code may wait between
// the two.
static VALUE exec(VALUE self, VALUE socket, VALUE version, VALUE path)
{
    VALUE arguments[3] = {socket, version, path};
    return RTEST(send_request(self, socket, version, path))
               ? Qnil
               : net_http_call_original(self, id_exec, 3, arguments, RB_NO_KEYWORDS);
}

// ---- making

struct fields {
    VALUE header;
    bool for_stock;
    bool coded; // sets the accepted encodings
};

static int take_field(VALUE name, VALUE value, VALUE argument)
{
    struct fields *fields = (struct fields *)argument;
    fields->for_stock = true;
    if (!is_plain(name) || !is_plain(value) || RSTRING_LEN(value) > HTTP_VALUE) return ST_STOP;
    size_t length = (size_t)RSTRING_LEN(name);
    if (length == 0 || length > HTTP_NAME || has_line_end(value)) return ST_STOP;
    char lower[HTTP_NAME];
    for (size_t i = 0; i < length; i++) {
        char byte = RSTRING_PTR(name)[i];
        if (byte < ' ' || byte == 0x7f || byte == ':') return ST_STOP;
        lower[i] = byte >= 'A' && byte <= 'Z' ? (char)(byte + 0x20) : byte;
    }
    VALUE key = rb_enc_interned_str(lower, (long)length, rb_enc_get(name));
    if (!NIL_P(rb_hash_lookup(fields->header, key))) return ST_STOP; // stock warns
    const char *at = RSTRING_PTR(value);
    long from = 0, to = RSTRING_LEN(value);
    while (from < to && (at[from] == 0 || at[from] == ' ' || (at[from] >= '\t' && at[from] <= '\r')))
        from++;
    while (to > from && (at[to - 1] == 0 || at[to - 1] == ' ' || (at[to - 1] >= '\t' && at[to - 1] <= '\r')))
        to--;
    VALUE stripped = rb_enc_str_new(at + from, to - from, rb_enc_get(value));
    rb_hash_aset(fields->header, key, rb_ary_new_from_values(1, &stripped));
    if (rb_str_equal(key, accept_encoding) || rb_str_equal(key, range)) fields->coded = true;
    fields->for_stock = false;
    return ST_CONTINUE;
}

// initialize(method, has_body, response_has_body, path, header = nil)
static VALUE request_initialize(int argc, VALUE *argv, VALUE self)
{
    struct net_http_library *library = net_http_library_of_request(self);
    if (argc < 4 || argc > 5 || rb_keyword_given_p() || !net_http_library_does(library, HTTP_UNPATCHED_REQUEST) ||
        !net_http_library_knows_request(library, self) || !net_http_library_takes_fields(library) ||
        !RB_TYPE_P(argv[3], T_STRING) || RSTRING_LEN(argv[3]) == 0) {
        return net_http_call_original(self, id_initialize, argc, argv,
                                      rb_keyword_given_p() ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS);
    }
    struct fields fields = {.header = rb_hash_new()};
    if (argc > 4 && !NIL_P(argv[4])) {
        if (!SPECIAL_CONST_P(argv[4]) && CLASS_OF(argv[4]) == rb_cHash) {
            rb_hash_foreach(argv[4], take_field, (VALUE)&fields);
        } else {
            fields.for_stock = true;
        }
        if (fields.for_stock) return net_http_call_original(self, id_initialize, argc, argv, RB_NO_KEYWORDS);
    }
    bool decode = library->inflates && !fields.coded && RTEST(argv[2]);
    VALUE constant = library->request_fields;
    for (long i = 0; i < RARRAY_LEN(constant); i += 2) {
        VALUE name = rb_ary_entry(constant, i);
        if (fields.coded && rb_str_equal(name, accept_encoding)) continue;
        if (!NIL_P(rb_hash_lookup(fields.header, name))) continue;
        VALUE value = rb_str_dup(rb_ary_entry(constant, i + 1));
        rb_hash_aset(fields.header, name, rb_ary_new_from_values(1, &value));
    }
    VALUE template = library->request_template;
    for (long i = 0; i < RARRAY_LEN(template); i += 2) {
        ID name = rb_sym2id(rb_ary_entry(template, i));
        VALUE value = rb_ary_entry(template, i + 1);
        if (name == iv_method) value = argv[0];
        if (name == iv_request_has_body) value = argv[1];
        if (name == iv_response_has_body) value = argv[2];
        if (name == iv_path) value = rb_str_dup(argv[3]);
        if (name == iv_header) value = fields.header;
        if (name == iv_decode_content) value = decode ? Qtrue : Qfalse;
        rb_ivar_set(self, name, value);
    }
    return Qnil;
}

void net_http_request_define(VALUE request)
{
    rb_define_method(request, "exec", exec, 3);
    rb_define_private_method(request, "initialize", request_initialize, -1);
    if (accept_encoding) return;
    transfer_encoding = net_http_constant("transfer-encoding");
    expect = net_http_constant("expect");
    range = net_http_constant("range");
    accept_encoding = net_http_constant("accept-encoding");
}
