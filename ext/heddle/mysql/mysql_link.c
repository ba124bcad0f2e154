#include "mysql/mysql_link.h"

#include "mysql/bindings.h"
#include "os/fork.h"

#include <string.h>

enum { LARGE_PACKET = 64 << 10 };

VALUE mysql_cLink;

// ---- bytes

void mysql_bytes_reserve(struct mysql_bytes *bytes, size_t room)
{
    if (bytes->capacity - bytes->length >= room) return;
    if (room > SIZE_MAX / 4 - bytes->length) rb_raise(rb_eNoMemError, "a request of more than %zu bytes", SIZE_MAX / 4);
    size_t capacity = bytes->capacity ? bytes->capacity : 256;
    while (capacity - bytes->length < room)
        capacity *= 2;
    bytes->at = xrealloc(bytes->at, capacity);
    bytes->capacity = capacity;
}

void mysql_bytes_append(struct mysql_bytes *bytes, const void *from, size_t length)
{
    mysql_bytes_reserve(bytes, length);
    if (length) memcpy(bytes->at + bytes->length, from, length);
    bytes->length += length;
}

// ---- the object

static void mark(void *pointer)
{
    const struct mysql_link *link = pointer;
    rb_gc_mark(link->stream);
    rb_gc_mark(link->apart);
}

void mysql_pending_closes_release(struct mysql_pending_closes *pending_closes)
{
    if (!pending_closes || --pending_closes->references) return;
    free(pending_closes->ids); // by realloc, see mysql_close_pending
    xfree(pending_closes);
}

static void release(void *pointer)
{
    struct mysql_link *link = pointer;
    if (link->pending_closes) link->pending_closes->dead = true;
    mysql_pending_closes_release(link->pending_closes);
    xfree(link->request.at);
    xfree(link->row.at);
    xfree(link);
}

static size_t memsize(const void *pointer)
{
    const struct mysql_link *link = pointer;
    return sizeof(*link) + link->request.capacity + link->row.capacity;
}

static const rb_data_type_t link_type = {
    .wrap_struct_name = "Heddle::DB::MySQL::Link",
    .function = {.dmark = mark, .dfree = release, .dsize = memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE allocate(VALUE klass)
{
    struct mysql_link *link;
    VALUE self = TypedData_Make_Struct(klass, struct mysql_link, &link_type, link);
    link->stream = Qnil;
    link->apart = Qnil;
    link->span = DEADLINE_NEVER;
    link->encoding = rb_utf8_encoding();
    link->pending_closes = ZALLOC(struct mysql_pending_closes);
    link->pending_closes->references = 1;
    return self;
}

struct mysql_link *mysql_link_of(VALUE self)
{
    return rb_check_typeddata(self, &link_type);
}

// ---- exchanges

static VALUE db_error(const char *name)
{
    return rb_path2class(name);
}

void mysql_violated(struct mysql_link *link, const char *what)
{
    VALUE peer = rb_funcall(link->stream, rb_intern("peer"), 0);
    stream_poison(stream_of(link->stream), "its peer broke the protocol");
    rb_raise(db_error("Heddle::DB::ProtocolError"), "%" PRIsVALUE " %s; the connection is closed", peer, what);
}

bool mysql_forked(const struct mysql_link *link)
{
    return link->born != fork_count();
}

void mysql_leave(struct mysql_link *link)
{
    link->busy = false; // the exchange is that of a fiber or thread of the parent
    if (!stream_is_closed(link->stream)) stream_poison(stream_of(link->stream), "it belongs to the parent process");
}

RBIMPL_ATTR_NORETURN()
static void refuse_child(struct mysql_link *link)
{
    VALUE peer = rb_funcall(link->stream, rb_intern("peer"), 0);
    mysql_leave(link);
    rb_raise(db_error("Heddle::DB::ConnectionLost"),
             "this connection to %" PRIsVALUE
             " belongs to the process that this one was forked from, and is closed here: "
             "connect again in the child, or use a Heddle::DB::Pool, which does so by itself",
             peer);
}

static VALUE exchange_body(VALUE argument)
{
    struct mysql_exchange *exchange = (struct mysql_exchange *)argument;
    VALUE result = exchange->body(exchange);
    exchange->complete = true;
    return result;
}

static VALUE exchange_end(VALUE argument)
{
    const struct mysql_exchange *exchange = (const struct mysql_exchange *)argument;
    struct mysql_link *link = exchange->link;
    link->busy = false;
    link->apart = Qnil;
    if (!RTEST(rb_funcall(link->stream, rb_intern("closed?"), 0))) {
        struct stream *stream = stream_of(link->stream);
        if (link->pending) stream_consume(stream, link->pending);
        if (exchange->bounded) stream_bound(stream, exchange->before);
        if (!exchange->complete && !exchange->gives) stream_poison(stream, "an exchange did not come to its end");
    }
    link->pending = 0;
    if (!exchange->complete && exchange->gives) mysql_flush_when_idle(exchange->self);
    // What was large once need not stay.
    if (link->request.capacity > (64 << 10)) {
        xfree(link->request.at);
        link->request = (struct mysql_bytes){0};
    }
    if (link->row.capacity > (64 << 10)) {
        xfree(link->row.at);
        link->row = (struct mysql_bytes){0};
    }
    return Qnil;
}

VALUE mysql_exchange(struct mysql_exchange *exchange)
{
    struct mysql_link *link = exchange->link = mysql_link_of(exchange->self);
    if (mysql_forked(link)) refuse_child(link);
    if (link->busy)
        rb_raise(db_error("Heddle::DB::Busy"),
                 "another fiber or thread is in the middle of a query on this connection: give each its own "
                 "(Heddle::DB::Pool), or let them take turns");
    struct stream *stream = stream_of(link->stream);
    link->busy = true;
    link->exchanges++;
    link->pending = 0;
    if (link->span != DEADLINE_NEVER) {
        deadline_t until = deadline_after(deadline_now(), link->span);
        exchange->before = stream_bound(stream, until);
        if (exchange->before < until) stream_bound(stream, exchange->before);
        exchange->bounded = true;
    }
    VALUE result = rb_ensure(exchange_body, (VALUE)exchange, exchange_end, (VALUE)exchange);
    mysql_flush_when_idle(exchange->self);
    RB_GC_GUARD(exchange->self);
    return result;
}

VALUE mysql_exchange_with(VALUE self, VALUE (*body)(struct mysql_exchange *), VALUE first, VALUE second)
{
    struct mysql_exchange exchange = {.self = self, .body = body, .arguments = {first, second}};
    return mysql_exchange(&exchange);
}

// ---- packets in

static struct mysql_span span_apart(const struct mysql_link *link)
{
    return (struct mysql_span){(const uint8_t *)RSTRING_PTR(link->apart), (size_t)RSTRING_LEN(link->apart)};
}

// One of 16 MiB or more comes in several, the last of them shorter.
static struct mysql_span joined_packet(struct mysql_link *link, struct stream *stream)
{
    link->apart = rb_obj_hide(rb_str_buf_new(MYSQL_LARGEST_PACKET));
    size_t length;
    do {
        const uint8_t *p = stream_need(stream, MYSQL_HEADER);
        length = mysql_packet_length(p);
        if (mysql_packet_sequence(p) != link->sequence++) mysql_violated(link, "sent a packet out of turn");
        stream_consume(stream, MYSQL_HEADER);
        for (size_t left = length; left > 0;) {
            size_t buffered;
            const uint8_t *bytes = stream_buffered(stream, &buffered);
            if (!buffered) {
                stream_need(stream, 1);
                continue;
            }
            if (buffered > left) buffered = left;
            rb_str_cat(link->apart, (const char *)bytes, (long)buffered);
            stream_consume(stream, buffered);
            left -= buffered;
        }
        if ((size_t)RSTRING_LEN(link->apart) > (size_t)1 << 31) mysql_violated(link, "sent more than 2 GiB at once");
    } while (length == MYSQL_LARGEST_PACKET);
    return span_apart(link);
}

// A large one is received into a String of its own: the stream's buffer would have to grow for it, and its values be copied
// out of that.
static struct mysql_span large_packet(struct mysql_link *link, struct stream *stream, size_t length)
{
    stream_consume(stream, MYSQL_HEADER);
    link->apart = stream_take(stream, length);
    link->whole = true;
    return span_apart(link);
}

// A server need not read all packets of a request before it refuses it as too large (1153): its error has the number behind
// that of the last packet that it has read.
static bool answers_early(const struct mysql_link *link, uint8_t number)
{
    uint8_t last = link->owed ? link->starts[link->first % MYSQL_IN_FLIGHT] : 0;
    return link->sequence == last && number >= 1 && number < last;
}

struct mysql_span mysql_packet(struct mysql_link *link)
{
    struct stream *stream = stream_of(link->stream);
    if (link->pending) stream_consume(stream, link->pending);
    link->pending = 0;
    link->apart = Qnil;
    link->whole = false;
    size_t buffered;
    const uint8_t *p = stream_buffered(stream, &buffered);
    if (buffered < MYSQL_HEADER) {
        p = stream_need(stream, MYSQL_HEADER);
        stream_buffered(stream, &buffered);
    }
    size_t length = mysql_packet_length(p);
    if (length == MYSQL_LARGEST_PACKET) return joined_packet(link, stream);
    if (mysql_packet_sequence(p) != link->sequence) {
        if (!length || !answers_early(link, mysql_packet_sequence(p)) ||
            stream_need(stream, MYSQL_HEADER + 1)[MYSQL_HEADER] != 0xff)
            mysql_violated(link, "sent a packet out of turn");
        p = stream_buffered(stream, &buffered);
    }
    link->sequence++;
    if (length >= LARGE_PACKET && buffered < MYSQL_HEADER + length) return large_packet(link, stream, length);
    if (buffered < MYSQL_HEADER + length) p = stream_need(stream, MYSQL_HEADER + length);
    link->pending = MYSQL_HEADER + length;
    return (struct mysql_span){p + MYSQL_HEADER, length};
}

void mysql_reply_begin(struct mysql_link *link)
{
    if (!link->owed) rb_raise(rb_eRuntimeError, "no reply is owed");
    link->sequence = link->starts[link->first % MYSQL_IN_FLIGHT];
}

void mysql_reply_end(struct mysql_link *link)
{
    struct stream *stream = stream_of(link->stream);
    if (link->pending) stream_consume(stream, link->pending);
    link->pending = 0;
    link->first++;
    link->owed--;
    stream_replied(stream, 1);
}

// ---- packets out

static void check_room(const struct mysql_link *link)
{
    if (link->owed >= MYSQL_IN_FLIGHT) rb_raise(rb_eArgError, "more than %d requests at once", MYSQL_IN_FLIGHT);
}

// Statements that GC has freed. Between reading their list and emptying it nothing is allocated by Ruby.
void mysql_send_pending_closes(struct mysql_link *link)
{
    struct mysql_pending_closes *pending_closes = link->pending_closes;
    while (pending_closes->count)
        mysql_close_later(link, pending_closes->ids[--pending_closes->count]);
}

static void owe(struct mysql_link *link, struct stream *stream, size_t packets)
{
    stream_expect(stream, 1);
    link->starts[(link->first + link->owed) % MYSQL_IN_FLIGHT] = (uint8_t)packets;
    link->owed++;
    link->closes = 0; // they went ahead
}

static void begin_request(struct mysql_link *link)
{
    check_room(link);
    mysql_send_pending_closes(link);
}

void mysql_ask(struct mysql_link *link, uint8_t command, const void *bytes, size_t length)
{
    begin_request(link);
    struct stream *stream = stream_of(link->stream);
    if (length + 1 < MYSQL_LARGEST_PACKET) {
        uint8_t *p = stream_reserve(stream, MYSQL_HEADER + 1 + length);
        mysql_put_header(p, length + 1, 0);
        p[MYSQL_HEADER] = command;
        if (length) memcpy(p + MYSQL_HEADER + 1, bytes, length);
        stream_commit(stream, MYSQL_HEADER + 1 + length);
        owe(link, stream, 1);
        return;
    }
    link->request.length = 0;
    mysql_bytes_append(&link->request, &command, 1);
    mysql_bytes_append(&link->request, bytes, length);
    mysql_ask_built(link);
}

void mysql_ask_built(struct mysql_link *link)
{
    begin_request(link);
    struct stream *stream = stream_of(link->stream);
    const struct mysql_bytes *request = &link->request;
    size_t packets = request->length / MYSQL_LARGEST_PACKET + 1;
    uint8_t *p = stream_reserve(stream, request->length + packets * MYSQL_HEADER);
    uint8_t *begin = p;
    size_t sent = 0;
    for (size_t i = 0; i < packets; i++) {
        size_t length = request->length - sent < MYSQL_LARGEST_PACKET ? request->length - sent : MYSQL_LARGEST_PACKET;
        mysql_put_header(p, length, (uint8_t)i);
        if (length) memcpy(p + MYSQL_HEADER, request->at + sent, length);
        p += MYSQL_HEADER + length;
        sent += length;
    }
    stream_commit(stream, (size_t)(p - begin));
    owe(link, stream, packets);
}

// ---- closes

void mysql_close_pending(struct mysql_pending_closes *pending_closes, uint32_t id)
{
    if (pending_closes->dead) return;
    if (pending_closes->count == pending_closes->capacity) {
        // Called while GC frees: nothing that could start another. What cannot be noted is lost to the server's count only.
        uint32_t capacity = pending_closes->capacity ? pending_closes->capacity * 2 : 16;
        uint32_t *ids = realloc(pending_closes->ids, capacity * sizeof(*ids));
        if (!ids) return;
        pending_closes->ids = ids;
        pending_closes->capacity = capacity;
    }
    pending_closes->ids[pending_closes->count++] = id;
}

void mysql_close_later(struct mysql_link *link, uint32_t id)
{
    uint8_t message[MYSQL_HEADER + 5];
    mysql_put_header(message, 5, 0);
    message[MYSQL_HEADER] = 0x19; // COM_STMT_CLOSE
    for (int i = 0; i < 4; i++)
        message[MYSQL_HEADER + 1 + i] = (uint8_t)(id >> (8 * i));
    struct stream *stream = stream_of(link->stream);
    stream_queue_no_reply(stream, message, sizeof(message));
    link->closes++;
    if (id == link->last) link->last_open = false;
}

void Init_heddle_mysql(void)
{
    VALUE db = rb_define_module_under(heddle_module, "DB");
    VALUE mysql = rb_define_module_under(db, "MySQL");
    mysql_cLink = rb_define_class_under(mysql, "Link", rb_cObject);
    rb_gc_register_mark_object(mysql_cLink);
    rb_define_alloc_func(mysql_cLink, allocate);
    rb_undef_method(mysql_cLink, "initialize_copy");
    mysql_parameters_init();
    mysql_values_init();
    mysql_results_init();
    mysql_login_init();
    mysql_commands_init();
    mysql_idle_init();
}
