#include "db/mysql/protocol.h"

#include "os/main_ractor.h"

#include <string.h>

enum { LARGE_PACKET = 64 << 10 };

VALUE mysql_cProtocol;

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

static void mysql_protocol_references(void *pointer, reference_function *each)
{
    struct mysql_protocol *protocol = pointer;
    db_protocol_references(&protocol->base, each);
    each(&protocol->separate);
    each(&protocol->refused);
}

REFERENCES(mysql_protocol)

static void mysql_protocol_release(void *pointer)
{
    if (main_ractor_releases(pointer, mysql_protocol_release)) return;
    struct mysql_protocol *protocol = pointer;
    db_protocol_release(&protocol->base);
    xfree(protocol->request.at);
    xfree(protocol->row.at);
    xfree(protocol);
}

static size_t mysql_protocol_memsize(const void *pointer)
{
    const struct mysql_protocol *protocol = pointer;
    return sizeof(*protocol) + protocol->request.capacity + protocol->row.capacity;
}

static const rb_data_type_t protocol_type = {
    .wrap_struct_name = "Heddle::DB::MySQL::Protocol",
    .function = {.dmark = mysql_protocol_mark,
                 .dfree = mysql_protocol_release,
                 .dsize = mysql_protocol_memsize,
                 .dcompact = mysql_protocol_compact},
    .parent = &db_protocol_type,
    // No write barriers: each exchange stores into the connection, and connections are few.
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

VALUE mysql_protocol_allocate(VALUE klass)
{
    struct mysql_protocol *protocol;
    VALUE self = TypedData_Make_Struct(klass, struct mysql_protocol, &protocol_type, protocol);
    protocol->separate = protocol->refused = Qnil;
    protocol->encoding = rb_utf8_encoding();
    db_protocol_init(&protocol->base);
    return self;
}

struct mysql_protocol *mysql_protocol_of(VALUE self)
{
    return rb_check_typeddata(self, &protocol_type);
}

// ---- packets in

static struct mysql_span separate_span(const struct mysql_protocol *protocol)
{
    return (struct mysql_span){(const uint8_t *)RSTRING_PTR(protocol->separate),
                               (size_t)RSTRING_LEN(protocol->separate)};
}

// Receives the rest of a large packet, appending it to `bytes` unless that is nil.
static void take_parts(struct mysql_protocol *protocol, struct stream *stream, VALUE bytes)
{
    for (;;) {
        db_protocol_take_left(&protocol->base, stream, bytes);
        if (!NIL_P(bytes) && (size_t)RSTRING_LEN(bytes) > (size_t)1 << 31)
            db_protocol_violated(&protocol->base, "sent more than 2 GiB at once");
        if (!protocol->continues) return;
        const uint8_t *p = stream_need(stream, MYSQL_HEADER);
        protocol->base.left = mysql_packet_length(p);
        protocol->continues = protocol->base.left == MYSQL_LARGEST_PACKET;
        if (mysql_packet_sequence(p) != protocol->sequence++)
            db_protocol_violated(&protocol->base, "sent a packet out of sequence");
        stream_consume(stream, MYSQL_HEADER);
    }
}

// Joins a packet of 16 MiB or more, which comes in several packets; the last of them is shorter.
static struct mysql_span joined_packet(struct mysql_protocol *protocol, struct stream *stream)
{
    protocol->separate = rb_obj_hide(rb_str_buf_new(MYSQL_LARGEST_PACKET));
    protocol->continues = true;
    take_parts(protocol, stream, protocol->separate);
    return separate_span(protocol);
}

static struct mysql_span large_packet(struct mysql_protocol *protocol, struct stream *stream, size_t length)
{
    protocol->sequence++;
    stream_consume(stream, MYSQL_HEADER);
    protocol->separate = db_protocol_take(&protocol->base, stream, length);
    protocol->whole = !protocol->base.shared;
    return separate_span(protocol);
}

// Whether the packet may be received apart from the stream's buffer. Of a shared connection only rows may: whoever
// skips the rest of one for an interrupted reader has to know what it was.
static bool may_come_apart(const struct mysql_protocol *protocol, struct stream *stream)
{
    if (!protocol->base.shared) return true;
    return protocol->part == MYSQL_ROWS && !protocol->definitions &&
           stream_need(stream, MYSQL_HEADER + 1)[MYSQL_HEADER] == 0;
}

// Returns whether an error with this number may come where a reply begins. The server sends it before it has read all
// packets of a request which is too large (1153): the error carries the number after the last packet that was read. Or
// it ended the session while nothing was asked (4031: for it was idle): then the number is 0.
static bool answers_early(const struct mysql_protocol *protocol, uint8_t number)
{
    uint8_t last = protocol->base.owed ? protocol->owed[protocol->first % MYSQL_IN_FLIGHT].start : 0;
    return protocol->sequence == last && number < last;
}

struct mysql_span mysql_packet(struct mysql_protocol *protocol)
{
    struct stream *stream = stream_of(protocol->base.stream);
    db_protocol_consume(&protocol->base, stream);
    stream_parsed(stream, 0);
    protocol->separate = Qnil;
    protocol->whole = false;
    take_parts(protocol, stream, Qnil); // of a packet whose reader was interrupted
    size_t buffered;
    const uint8_t *p = stream_buffered(stream, &buffered);
    if (buffered < MYSQL_HEADER) {
        p = stream_need(stream, MYSQL_HEADER);
        stream_buffered(stream, &buffered);
    }
    size_t length = mysql_packet_length(p);
    bool apart = length == MYSQL_LARGEST_PACKET || (length >= LARGE_PACKET && buffered < MYSQL_HEADER + length);
    if (apart) {
        apart = may_come_apart(protocol, stream);
        if (length == MYSQL_LARGEST_PACKET && !apart)
            db_protocol_violated(&protocol->base, "sent 16 MiB where no row can be");
        if (length == MYSQL_LARGEST_PACKET) return joined_packet(protocol, stream);
        p = stream_buffered(stream, &buffered);
    }
    if (mysql_packet_sequence(p) != protocol->sequence) {
        if (!length || !answers_early(protocol, mysql_packet_sequence(p)) ||
            stream_need(stream, MYSQL_HEADER + 1)[MYSQL_HEADER] != 0xff)
            db_protocol_violated(&protocol->base, "sent a packet out of sequence");
        protocol->unasked = mysql_packet_sequence(p) == 0;
        p = stream_buffered(stream, &buffered);
    }
    if (apart) return large_packet(protocol, stream, length);
    if (buffered < MYSQL_HEADER + length) p = stream_need(stream, MYSQL_HEADER + length);
    protocol->sequence++;
    protocol->base.pending = MYSQL_HEADER + length;
    return (struct mysql_span){p + MYSQL_HEADER, length};
}

void mysql_reply_begin(struct mysql_protocol *protocol)
{
    if (!protocol->base.owed) rb_raise(rb_eRuntimeError, "no reply is outstanding");
    struct mysql_owed owed = protocol->owed[protocol->first % MYSQL_IN_FLIGHT];
    protocol->sequence = owed.start;
    protocol->definitions = 0;
    protocol->part = owed.prepare ? MYSQL_PREPARED : MYSQL_RESULT;
}

void mysql_reply_end(struct mysql_protocol *protocol)
{
    struct stream *stream = stream_of(protocol->base.stream);
    db_protocol_consume(&protocol->base, stream);
    protocol->first++;
    protocol->part = MYSQL_WHOLE;
    db_protocol_replied(&protocol->base, stream);
}

// ---- packets out

static void check_room(const struct mysql_protocol *protocol)
{
    if (protocol->base.owed >= MYSQL_IN_FLIGHT)
        rb_raise(rb_eArgError, "cannot send more than %d requests before their replies are read", MYSQL_IN_FLIGHT);
}

// Queues the closes that wait, in front of the request.
void mysql_queue_pending_closes(struct mysql_protocol *protocol)
{
    for (uint32_t id; pending_closes_take(protocol->base.pending_closes, &id);)
        mysql_queue_close(protocol, id);
}

static void owe(struct mysql_protocol *protocol, struct stream *stream, size_t packets, uint8_t command)
{
    protocol->owed[(protocol->first + protocol->base.owed) % MYSQL_IN_FLIGHT] =
        (struct mysql_owed){.start = (uint8_t)packets, .prepare = command == MYSQL_PREPARE};
    db_protocol_requested(&protocol->base, stream, 1);
}

static void begin_request(struct mysql_protocol *protocol)
{
    check_room(protocol);
    db_protocol_check_process(&protocol->base);
    if (!protocol->base.shared) mysql_queue_pending_closes(protocol); // so many that the stream sends them might wait
}

void mysql_request(struct mysql_protocol *protocol, uint8_t command, const void *bytes, size_t length)
{
    begin_request(protocol);
    struct stream *stream = stream_of(protocol->base.stream);
    if (length + 1 < MYSQL_LARGEST_PACKET) {
        uint8_t *p = stream_reserve(stream, MYSQL_HEADER + 1 + length);
        mysql_put_header(p, length + 1, 0);
        p[MYSQL_HEADER] = command;
        if (length) memcpy(p + MYSQL_HEADER + 1, bytes, length);
        stream_commit(stream, MYSQL_HEADER + 1 + length);
        owe(protocol, stream, 1, command);
        return;
    }
    protocol->request.length = 0;
    mysql_bytes_append(&protocol->request, &command, 1);
    mysql_bytes_append(&protocol->request, bytes, length);
    mysql_request_built(protocol, &protocol->request);
}

void mysql_request_built(struct mysql_protocol *protocol, const struct mysql_bytes *request)
{
    begin_request(protocol);
    struct stream *stream = stream_of(protocol->base.stream);
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
    owe(protocol, stream, packets, request->at[0]);
}

void mysql_request_new(struct mysql_protocol *protocol, VALUE sql, const struct mysql_bytes *built)
{
    mysql_request(protocol, MYSQL_PREPARE, RSTRING_PTR(sql), (size_t)RSTRING_LEN(sql));
    mysql_request_built(protocol, built);
    RB_GC_GUARD(sql);
}

// ---- closes

enum { CLOSE_LENGTH = MYSQL_HEADER + 5 };

static void put_close(uint8_t *message, uint32_t id)
{
    mysql_put_header(message, CLOSE_LENGTH - MYSQL_HEADER, 0);
    message[MYSQL_HEADER] = 0x19; // COM_STMT_CLOSE
    mysql_put_little(message + MYSQL_HEADER + 1, id, 4);
}

void mysql_close_last(struct mysql_protocol *protocol)
{
    uint8_t message[CLOSE_LENGTH];
    put_close(message, MYSQL_LAST_STATEMENT);
    stream_append(stream_of(protocol->base.stream), message, sizeof(message));
    protocol->last_open = false;
}

void mysql_queue_close(struct mysql_protocol *protocol, uint32_t id)
{
    uint8_t message[CLOSE_LENGTH];
    put_close(message, id);
    stream_queue_no_reply(stream_of(protocol->base.stream), message, sizeof(message));
    protocol->base.closes++;
    if (id == protocol->last) protocol->last_open = false;
}
