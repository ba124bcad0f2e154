#include "db/mysql/link.h"

#include <string.h>

enum { LARGE_PACKET = 64 << 10 };

VALUE mysql_cLink;

// ---- bytes

void mysql_bytes_reserve(struct mysql_bytes *bytes, size_t room)
{
    if (bytes->capacity - bytes->length >= room) return;
    if (room > SIZE_MAX / 4 - bytes->length)
        rb_raise(rb_eNoMemError, "a request cannot be longer than %zu bytes", SIZE_MAX / 4);
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

static void mysql_link_mark(void *pointer)
{
    const struct mysql_link *link = pointer;
    db_link_mark(&link->base);
    rb_gc_mark_movable(link->separate);
    rb_gc_mark_movable(link->refused);
}

static void mysql_link_compact(void *pointer)
{
    struct mysql_link *link = pointer;
    db_link_compact(&link->base);
    link->separate = rb_gc_location(link->separate);
    link->refused = rb_gc_location(link->refused);
}

static void mysql_link_release(void *pointer)
{
    struct mysql_link *link = pointer;
    db_link_release(&link->base);
    xfree(link->request.at);
    xfree(link->row.at);
    xfree(link);
}

static size_t mysql_link_memsize(const void *pointer)
{
    const struct mysql_link *link = pointer;
    return sizeof(*link) + link->request.capacity + link->row.capacity;
}

static const rb_data_type_t link_type = {
    .wrap_struct_name = "Heddle::DB::MySQL::Link",
    .function = {.dmark = mysql_link_mark,
                 .dfree = mysql_link_release,
                 .dsize = mysql_link_memsize,
                 .dcompact = mysql_link_compact},
    .parent = &db_link_type,
    // No write barriers: each exchange stores into the link, and links are few.
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

VALUE mysql_link_allocate(VALUE klass)
{
    struct mysql_link *link;
    VALUE self = TypedData_Make_Struct(klass, struct mysql_link, &link_type, link);
    link->separate = link->refused = Qnil;
    link->encoding = rb_utf8_encoding();
    db_link_init(&link->base);
    return self;
}

struct mysql_link *mysql_link_of(VALUE self)
{
    return rb_check_typeddata(self, &link_type);
}

// ---- packets in

static struct mysql_span separate_span(const struct mysql_link *link)
{
    return (struct mysql_span){(const uint8_t *)RSTRING_PTR(link->separate), (size_t)RSTRING_LEN(link->separate)};
}

// Joins a packet of 16 MiB or more, which comes in several packets; the last of them is shorter.
static struct mysql_span joined_packet(struct mysql_link *link, struct stream *stream)
{
    link->separate = rb_obj_hide(rb_str_buf_new(MYSQL_LARGEST_PACKET));
    size_t length;
    do {
        const uint8_t *p = stream_need(stream, MYSQL_HEADER);
        length = mysql_packet_length(p);
        if (mysql_packet_sequence(p) != link->sequence++)
            db_link_violated(&link->base, "sent a packet out of sequence");
        stream_consume(stream, MYSQL_HEADER);
        for (size_t left = length; left > 0;) {
            size_t buffered;
            const uint8_t *bytes = stream_buffered(stream, &buffered);
            if (!buffered) {
                stream_need(stream, 1);
                continue;
            }
            if (buffered > left) buffered = left;
            rb_str_cat(link->separate, (const char *)bytes, (long)buffered);
            stream_consume(stream, buffered);
            left -= buffered;
        }
        if ((size_t)RSTRING_LEN(link->separate) > (size_t)1 << 31)
            db_link_violated(&link->base, "sent more than 2 GiB at once");
    } while (length == MYSQL_LARGEST_PACKET);
    return separate_span(link);
}

// Receives a large packet into a String of its own: otherwise the stream's buffer would have to grow, and values would
// be copied out of it.
static struct mysql_span large_packet(struct mysql_link *link, struct stream *stream, size_t length)
{
    stream_consume(stream, MYSQL_HEADER);
    link->separate = stream_take(stream, length);
    link->whole = true;
    return separate_span(link);
}

// Returns whether an error with this number may come where a reply begins. The server sends it before it has read all
// packets of a request which is too large (1153): the error carries the number after the last packet that was read. Or
// it ended the session while nothing was asked (4031: for it was idle): then the number is 0.
static bool answers_early(const struct mysql_link *link, uint8_t number)
{
    uint8_t last = link->base.owed ? link->starts[link->first % MYSQL_IN_FLIGHT] : 0;
    return link->sequence == last && number < last;
}

struct mysql_span mysql_packet(struct mysql_link *link)
{
    struct stream *stream = stream_of(link->base.stream);
    db_link_consume(&link->base, stream);
    stream_parsed(stream, 0);
    link->separate = Qnil;
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
            db_link_violated(&link->base, "sent a packet out of sequence");
        link->unasked = mysql_packet_sequence(p) == 0;
        p = stream_buffered(stream, &buffered);
    }
    link->sequence++;
    if (length >= LARGE_PACKET && buffered < MYSQL_HEADER + length) return large_packet(link, stream, length);
    if (buffered < MYSQL_HEADER + length) p = stream_need(stream, MYSQL_HEADER + length);
    link->base.pending = MYSQL_HEADER + length;
    return (struct mysql_span){p + MYSQL_HEADER, length};
}

void mysql_reply_begin(struct mysql_link *link)
{
    if (!link->base.owed) rb_raise(rb_eRuntimeError, "no reply is outstanding");
    link->sequence = link->starts[link->first % MYSQL_IN_FLIGHT];
}

void mysql_reply_end(struct mysql_link *link)
{
    struct stream *stream = stream_of(link->base.stream);
    db_link_consume(&link->base, stream);
    link->first++;
    db_link_replied(&link->base, stream);
}

// ---- packets out

static void check_room(const struct mysql_link *link)
{
    if (link->base.owed >= MYSQL_IN_FLIGHT)
        rb_raise(rb_eArgError, "cannot send more than %d requests before their replies are read", MYSQL_IN_FLIGHT);
}

// Queues the closes that wait, in front of the request.
void mysql_queue_pending_closes(struct mysql_link *link)
{
    for (uint32_t id; pending_closes_take(link->base.pending_closes, &id);)
        mysql_queue_close(link, id);
}

static void owe(struct mysql_link *link, struct stream *stream, size_t packets)
{
    link->starts[(link->first + link->base.owed) % MYSQL_IN_FLIGHT] = (uint8_t)packets;
    db_link_requested(&link->base, stream, 1);
}

static void begin_request(struct mysql_link *link)
{
    check_room(link);
    db_link_check_process(&link->base);
    mysql_queue_pending_closes(link);
}

void mysql_request(struct mysql_link *link, uint8_t command, const void *bytes, size_t length)
{
    begin_request(link);
    struct stream *stream = stream_of(link->base.stream);
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
    mysql_request_built(link);
}

void mysql_request_built(struct mysql_link *link)
{
    begin_request(link);
    struct stream *stream = stream_of(link->base.stream);
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

void mysql_queue_close(struct mysql_link *link, uint32_t id)
{
    uint8_t message[MYSQL_HEADER + 5];
    mysql_put_header(message, 5, 0);
    message[MYSQL_HEADER] = 0x19; // COM_STMT_CLOSE
    mysql_put_little(message + MYSQL_HEADER + 1, id, 4);
    struct stream *stream = stream_of(link->base.stream);
    stream_queue_no_reply(stream, message, sizeof(message));
    link->base.closes++;
    if (id == link->last) link->last_open = false;
}
