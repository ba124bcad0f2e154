#include "db/postgresql/protocol.h"

#include "os/budget.h"
#include "os/main_ractor.h"

#include <string.h>

// Messages of this size on are received into a String of their own: the stream's buffer would have to grow for them.
enum { LARGE_MESSAGE = 64 << 10 };

// A message between two requests has at most this size.
enum { LARGEST_ASIDE = 16 << 20 };

VALUE postgresql_cProtocol;

// ---- the object

bool postgresql_grow(struct pg_buffer *buffer, size_t room)
{
    if (room > SIZE_MAX / 4 - buffer->length) return false;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity - buffer->length < room)
        capacity *= 2;
    buffer->at = xrealloc(buffer->at, capacity);
    buffer->capacity = capacity;
    return true;
}

static void postgresql_protocol_references(void *pointer, reference_function *each)
{
    struct postgresql_protocol *protocol = pointer;
    db_protocol_references(&protocol->base, each);
    each(&protocol->apart);
    each(&protocol->notices);
    each(&protocol->messages);
    each(&protocol->settings);
    each(&protocol->types);
    each(&protocol->unknown_types);
    each(&protocol->waiting);
    each(&protocol->wanted_texts);
    each(&protocol->server_texts);
    each(&protocol->preparing);
    each(&protocol->timeout.setter);
}

REFERENCES(postgresql_protocol)

static void postgresql_protocol_release(void *pointer)
{
    if (main_ractor_releases(pointer, postgresql_protocol_release)) return;
    struct postgresql_protocol *protocol = pointer;
    db_protocol_release(&protocol->base);
    xfree(protocol->request.at);
    xfree(protocol->row.at);
    xfree(protocol->looked.at);
    xfree(protocol);
}

static size_t postgresql_protocol_memsize(const void *pointer)
{
    const struct postgresql_protocol *protocol = pointer;
    return sizeof(*protocol) + protocol->request.capacity + protocol->row.capacity + protocol->looked.capacity;
}

static const rb_data_type_t protocol_type = {
    .wrap_struct_name = "Heddle::DB::PostgreSQL::Protocol",
    .function = {.dmark = postgresql_protocol_mark,
                 .dfree = postgresql_protocol_release,
                 .dsize = postgresql_protocol_memsize,
                 .dcompact = postgresql_protocol_compact},
    .parent = &db_protocol_type,
    // No write barriers: each exchange stores into the connection, and connections are few.
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

VALUE postgresql_protocol_allocate(VALUE klass)
{
    struct postgresql_protocol *protocol;
    VALUE self = TypedData_Make_Struct(klass, struct postgresql_protocol, &protocol_type, protocol);
    protocol->apart = protocol->notices = protocol->messages = protocol->settings = Qnil;
    protocol->unknown_types = protocol->waiting = protocol->wanted_texts = protocol->server_texts =
        protocol->preparing = protocol->timeout.setter = Qnil;
    for (int i = 0; i < POSTGRESQL_IN_FLIGHT; i++)
        protocol->timeout.owed[i].until = DEADLINE_NEVER;
    protocol->types = rb_hash_new();
    protocol->request.grow = protocol->row.grow = protocol->looked.grow = postgresql_grow;
    protocol->transaction = PG_IDLE;
    protocol->settings = rb_hash_new();
    db_protocol_init(&protocol->base);
    return self;
}

struct postgresql_protocol *postgresql_protocol_of(VALUE self)
{
    return rb_check_typeddata(self, &protocol_type);
}

// ---- states

void postgresql_become(struct postgresql_protocol *protocol, enum postgresql_state state)
{
    static const uint8_t following[] = {
        [POSTGRESQL_EXTENDED] = 1 << POSTGRESQL_SIMPLE | 1 << POSTGRESQL_SUSPENDED,
        [POSTGRESQL_SIMPLE] = 1 << POSTGRESQL_EXTENDED | 1 << POSTGRESQL_COPY_IN | 1 << POSTGRESQL_COPY_OUT,
        [POSTGRESQL_SUSPENDED] = 1 << POSTGRESQL_EXTENDED,
        [POSTGRESQL_COPY_IN] = 1 << POSTGRESQL_EXTENDED,
        [POSTGRESQL_COPY_OUT] = 1 << POSTGRESQL_EXTENDED,
    };
    HEDDLE_ASSERT(state == protocol->state || following[protocol->state] & 1 << state);
    (void)following;
    protocol->state = state;
}

bool postgresql_in_copy(const struct postgresql_protocol *protocol)
{
    return protocol->state == POSTGRESQL_COPY_IN || protocol->state == POSTGRESQL_COPY_OUT;
}

// ---- messages in

VALUE postgresql_utf8(struct pg_span span)
{
    return server_utf8((const char *)span.at, span.length, rb_utf8_encoding());
}

VALUE postgresql_text(struct pg_span span)
{
    return server_text((const char *)span.at, span.length, rb_utf8_encoding());
}

struct pg_message postgresql_any_message(struct postgresql_protocol *protocol)
{
    struct stream *stream = stream_of(protocol->base.stream);
    db_protocol_consume(&protocol->base, stream);
    stream_parsed(stream, 0);
    protocol->apart = Qnil;
    db_protocol_take_left(&protocol->base, stream, Qnil);
    size_t buffered;
    const uint8_t *p = stream_buffered(stream, &buffered);
    if (buffered < PG_HEADER) {
        p = stream_need(stream, PG_HEADER);
        stream_buffered(stream, &buffered);
    }
    struct pg_message message;
    if (pg_message_header(p, p + buffered, &message) != PG_DONE)
        db_protocol_violated(&protocol->base, "sent a message that no PostgreSQL server sends");
    size_t length = message.whole - PG_HEADER;
    if (length >= LARGE_MESSAGE && buffered < message.whole) {
        stream_consume(stream, PG_HEADER);
        protocol->apart = db_protocol_take(&protocol->base, stream, length);
        message.p = (const uint8_t *)RSTRING_PTR(protocol->apart);
    } else {
        if (buffered < message.whole) p = stream_need(stream, message.whole);
        protocol->base.pending = message.whole;
        message.p = p + PG_HEADER;
    }
    message.end = message.p + length;
    return message;
}

static VALUE notice_value(struct pg_message message)
{
    VALUE notice = rb_hash_new();
    struct pg_error_fields fields;
    pg_error_fields(message.p, message.end, &fields);
    for (int i = 0; i <= UINT8_MAX; i++) {
        char name = (char)i;
        if (fields.of[i].at) rb_hash_aset(notice, rb_str_new(&name, 1), postgresql_text(fields.of[i]));
    }
    return notice;
}

// Kept until Ruby asks for it. A server that sends without end must not fill the memory.
enum { MESSAGES_KEPT = 10000, BYTES_KEPT = 64 << 20 };

static int add_size(VALUE key, VALUE text, VALUE sum)
{
    (void)key;
    *(size_t *)sum += (size_t)RSTRING_LEN(text);
    return ST_CONTINUE;
}

// Bytes of the texts of a notice or a notification.
static size_t size_of(VALUE kept)
{
    size_t size = 0;
    if (RB_TYPE_P(kept, T_HASH)) {
        rb_hash_foreach(kept, add_size, (VALUE)&size);
        return size;
    }
    return (size_t)RSTRING_LEN(RARRAY_AREF(kept, 0)) + (size_t)RSTRING_LEN(RARRAY_AREF(kept, 1));
}

// Appends a value to a list, and drops the oldest ones beyond the limits. `size`: bytes of all values in the list.
static void postgresql_keep(VALUE *list, size_t *size, VALUE value)
{
    if (NIL_P(*list)) {
        *list = rb_ary_new();
        *size = 0;
    }
    size_t more = size_of(value);
    while (RARRAY_LEN(*list) && (RARRAY_LEN(*list) >= MESSAGES_KEPT || *size + more > BYTES_KEPT))
        *size -= size_of(rb_ary_shift(*list));
    rb_ary_push(*list, value);
    *size += more;
}

VALUE postgresql_take_notification(struct postgresql_protocol *protocol)
{
    if (NIL_P(protocol->messages) || !RARRAY_LEN(protocol->messages)) return Qnil;
    VALUE oldest = rb_ary_shift(protocol->messages);
    protocol->messages_size -= size_of(oldest);
    return oldest;
}

void postgresql_store_setting(struct postgresql_protocol *protocol, VALUE name, VALUE value)
{
    // PostgreSQL reports some fifteen settings. These limits keep a hostile server from filling the memory.
    enum { SETTINGS_MOST = 1000, SETTING_LONGEST = 64 << 10 };
    static const char strings[] = "standard_conforming_strings", version[] = "server_version";
    if (RHASH_SIZE(protocol->settings) >= SETTINGS_MOST && rb_hash_lookup2(protocol->settings, name, Qundef) == Qundef)
        db_protocol_violated(&protocol->base, "reports more settings than a PostgreSQL server has");
    if (RSTRING_LEN(name) > SETTING_LONGEST || RSTRING_LEN(value) > SETTING_LONGEST)
        db_protocol_violated(&protocol->base, "reports a setting that is longer than a PostgreSQL server has");
    rb_hash_aset(protocol->settings, name, value);
    if (RSTRING_LEN(name) == sizeof(strings) - 1 && memcmp(RSTRING_PTR(name), strings, sizeof(strings) - 1) == 0)
        protocol->backslashes = RSTRING_LEN(value) == 3 && memcmp(RSTRING_PTR(value), "off", 3) == 0;
    if (RSTRING_LEN(name) == sizeof(version) - 1 && memcmp(RSTRING_PTR(name), version, sizeof(version) - 1) == 0)
        protocol->version = NUM2INT(rb_funcall(rb_str_substr(value, 0, 4), rb_intern("to_i"), 0));
    RB_GC_GUARD(name);
    RB_GC_GUARD(value);
}

void postgresql_keep_notice(struct postgresql_protocol *protocol, struct pg_message message)
{
    postgresql_keep(&protocol->notices, &protocol->notices_size, notice_value(message));
}

// Handles a message that may come at any time, and returns true; returns false for any other message.
static bool is_aside(struct postgresql_protocol *protocol, struct pg_message message)
{
    switch (message.type) {
    case PG_NOTICE_RESPONSE:
        if (protocol->noticing) postgresql_keep_notice(protocol, message);
        return true;
    case PG_NOTIFICATION_RESPONSE: {
        struct pg_notification notification;
        if (!pg_notification(message.p, message.end, &notification))
            db_protocol_violated(&protocol->base, "sent a malformed notification");
        postgresql_keep(&protocol->messages, &protocol->messages_size,
                        rb_ary_new_from_args(3, postgresql_utf8(notification.channel),
                                             postgresql_utf8(notification.payload), UINT2NUM(notification.process)));
        return true;
    }
    case PG_PARAMETER_STATUS: {
        struct pg_span name, value;
        if (!pg_parameter_status(message.p, message.end, &name, &value))
            db_protocol_violated(&protocol->base, "sent a malformed setting");
        postgresql_store_setting(protocol, postgresql_utf8(name), postgresql_utf8(value));
        return true;
    }
    default: return false;
    }
}

struct pg_message postgresql_message(struct postgresql_protocol *protocol)
{
    for (;;) {
        struct pg_message message = postgresql_any_message(protocol);
        if (!is_aside(protocol, message)) return message;
    }
}

bool postgresql_has_message(struct postgresql_protocol *protocol)
{
    size_t buffered;
    const uint8_t *p = stream_buffered(stream_of(protocol->base.stream), &buffered);
    struct pg_message message;
    if (buffered <= protocol->base.pending) return false;
    return pg_message(p + protocol->base.pending, p + buffered, &message) == PG_DONE;
}

enum postgresql_arrived postgresql_consume_input(struct postgresql_protocol *protocol)
{
    struct stream *stream = stream_of(protocol->base.stream);
    db_protocol_consume(&protocol->base, stream);
    // A server that sends without end must not stop this process: other tasks run between two calls.
    for (size_t received = 0, kept = 0;;) {
        size_t buffered;
        const uint8_t *p = stream_buffered(stream, &buffered);
        struct pg_message message;
        enum pg_parsed parsed = buffered ? pg_message(p, p + buffered, &message) : PG_MORE;
        if (parsed == PG_INVALID)
            db_protocol_violated(&protocol->base, "sent a message that no PostgreSQL server sends");
        if (parsed == PG_DONE) {
            // Closes that went alone have answers that nobody waits for.
            if (message.type != PG_CLOSE_COMPLETE && !is_aside(protocol, message)) return POSTGRESQL_MESSAGE;
            stream_consume(stream, message.whole);
            kept += message.whole;
            if (kept >= BUDGET_BYTES && buffered > message.whole) return POSTGRESQL_PART;
            continue;
        }
        if (buffered >= PG_HEADER && pg_message_header(p, p + buffered, &message) == PG_DONE &&
            message.whole > LARGEST_ASIDE)
            db_protocol_violated(&protocol->base, "sent more than 16 MiB at once that nobody had asked for");
        if (received >= BUDGET_BYTES) return POSTGRESQL_PART;
        enum stream_arrived arrived = stream_receive_arrived(stream);
        if (arrived == STREAM_GONE) return POSTGRESQL_GONE;
        if (arrived == STREAM_NOTHING) return buffered ? POSTGRESQL_PART : POSTGRESQL_NOTHING;
        size_t before = buffered;
        stream_buffered(stream, &buffered);
        received += buffered - before;
    }
}

// ---- messages out

struct pg_span postgresql_span_of(VALUE string)
{
    return (struct pg_span){(const uint8_t *)RSTRING_PTR(string), (size_t)RSTRING_LEN(string)};
}

void postgresql_check(enum pg_written written)
{
    switch (written) {
    case PG_WRITTEN: return;
    case PG_NUL_IN_STRING:
        rb_raise(rb_eArgError, "a statement or a text has a NUL in it, which PostgreSQL does not take: bind bytes "
                               "(String#b) to a bytea");
    case PG_TOO_MANY_PARAMETERS:
        rb_raise(rb_eArgError, "more than %d parameters: bind one array instead (… = any(?))", PG_PARAMETERS_MOST);
    case PG_TOO_LONG: rb_raise(rb_eArgError, "a value or a statement is longer than the 1 GiB that PostgreSQL takes");
    case PG_NO_ROOM: rb_raise(rb_eNoMemError, "a request of this size has no room in memory");
    default: rb_raise(rb_eArgError, "the request cannot be written (%d)", (int)written);
    }
}

void postgresql_requested(struct postgresql_protocol *protocol, struct stream *stream, uint32_t syncs)
{
    struct postgresql_statement_timeout *timeout = &protocol->timeout;
    if (timeout->put) {
        uint64_t index = protocol->base.requested % POSTGRESQL_IN_FLIGHT;
        timeout->owed[index].ahead = true;
        timeout->owed[index].until = timeout->until;
    }
    timeout->put = false;
    db_protocol_requested(&protocol->base, stream, syncs);
}

static uint64_t oldest_owed(const struct postgresql_protocol *protocol)
{
    return (protocol->base.requested - protocol->base.owed) % POSTGRESQL_IN_FLIGHT;
}

bool *postgresql_timeout_ahead(struct postgresql_protocol *protocol)
{
    return &protocol->timeout.owed[oldest_owed(protocol)].ahead;
}

bool postgresql_timed_out(struct postgresql_protocol *protocol)
{
    deadline_t until = protocol->timeout.owed[oldest_owed(protocol)].until;
    return until != DEADLINE_NEVER && until <= deadline_now();
}

void postgresql_replied(struct postgresql_protocol *protocol)
{
    uint64_t index = oldest_owed(protocol);
    protocol->timeout.owed[index].ahead = false;
    protocol->timeout.owed[index].until = DEADLINE_NEVER;
    db_protocol_replied(&protocol->base, stream_of(protocol->base.stream));
}

void postgresql_send(struct postgresql_protocol *protocol, uint32_t syncs)
{
    db_protocol_check_process(&protocol->base);
    if (protocol->base.owed + syncs > POSTGRESQL_IN_FLIGHT)
        rb_raise(rb_eArgError, "more than %d requests at once", POSTGRESQL_IN_FLIGHT);
    postgresql_queue_pending_closes(protocol);
    struct stream *stream = stream_of(protocol->base.stream);
    stream_append(stream, protocol->request.at, protocol->request.length);
    protocol->request.length = 0;
    postgresql_requested(protocol, stream, syncs);
}

void postgresql_ask(struct postgresql_protocol *protocol)
{
    db_protocol_check_answered(&protocol->base);
    postgresql_send(protocol, 1);
}

// ---- closes

struct pg_span postgresql_name_of(const struct postgresql_protocol *protocol, uint32_t id, struct postgresql_name *name)
{
    if (!id) return (struct pg_span){name->bytes, 0}; // the unnamed statement
    int length = snprintf((char *)name->bytes, sizeof(name->bytes), "h%u%s", (unsigned)id, protocol->tag);
    name->length = (size_t)length;
    return (struct pg_span){name->bytes, name->length};
}

// Close goes ahead of the next request, and never behind one: after an error the server skips all messages up to the
// next Sync, and would skip the Close.
static void queue_close(struct postgresql_protocol *protocol, uint32_t id)
{
    struct postgresql_name name;
    uint8_t bytes[PG_HEADER + 1 + sizeof(name.bytes) + 1];
    struct pg_buffer buffer = {.at = bytes, .capacity = sizeof(bytes)};
    postgresql_check(pg_put_close(&buffer, PG_STATEMENT, postgresql_name_of(protocol, id, &name)));
    stream_queue_no_reply(stream_of(protocol->base.stream), bytes, buffer.length);
    protocol->base.closes++;
}

void postgresql_queue_pending_closes(struct postgresql_protocol *protocol)
{
    for (uint32_t id; pending_closes_take(protocol->base.pending_closes, &id);)
        queue_close(protocol, id);
}
