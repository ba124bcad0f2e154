#include "postgresql/postgresql_link.h"

#include "os/fork.h"
#include "postgresql/bindings.h"

#include <string.h>

// Messages of this size on are received into a String of their own: the stream's buffer would have to grow for them.
enum { LARGE_MESSAGE = 64 << 10, KEPT_CAPACITY = 64 << 10 };

VALUE postgresql_cLink;

// ---- the object

static bool grow(struct pg_buffer *buffer, size_t room)
{
    if (room > SIZE_MAX / 4 - buffer->length) return false;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity - buffer->length < room)
        capacity *= 2;
    buffer->at = xrealloc(buffer->at, capacity);
    buffer->capacity = capacity;
    return true;
}

static void mark(void *pointer)
{
    const struct postgresql_link *link = pointer;
    rb_gc_mark(link->stream);
    rb_gc_mark(link->apart);
    rb_gc_mark(link->notices);
    rb_gc_mark(link->messages);
    rb_gc_mark(link->settings);
    rb_gc_mark(link->types);
    rb_gc_mark(link->unknown_types);
    rb_gc_mark(link->waiting);
    rb_gc_mark(link->wanted_texts);
    rb_gc_mark(link->server_texts);
}

void postgresql_pending_closes_release(struct postgresql_pending_closes *pending_closes)
{
    if (!pending_closes || --pending_closes->references) return;
    free(pending_closes->ids); // by realloc, see postgresql_close_pending
    xfree(pending_closes);
}

static void release(void *pointer)
{
    struct postgresql_link *link = pointer;
    if (link->pending_closes) link->pending_closes->dead = true;
    postgresql_pending_closes_release(link->pending_closes);
    xfree(link->request.at);
    xfree(link->row.at);
    xfree(link);
}

static size_t memsize(const void *pointer)
{
    const struct postgresql_link *link = pointer;
    return sizeof(*link) + link->request.capacity + link->row.capacity;
}

static const rb_data_type_t link_type = {
    .wrap_struct_name = "Heddle::DB::PostgreSQL::Link",
    .function = {.dmark = mark, .dfree = release, .dsize = memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE allocate(VALUE klass)
{
    struct postgresql_link *link;
    VALUE self = TypedData_Make_Struct(klass, struct postgresql_link, &link_type, link);
    link->stream = link->apart = link->notices = link->messages = link->settings = Qnil;
    link->unknown_types = link->waiting = link->wanted_texts = link->server_texts = Qnil;
    link->types = rb_hash_new();
    link->span = DEADLINE_NEVER;
    link->request.grow = link->row.grow = grow;
    link->transaction = PG_IDLE;
    link->pending_closes = ZALLOC(struct postgresql_pending_closes);
    link->pending_closes->references = 1;
    link->settings = rb_hash_new();
    return self;
}

struct postgresql_link *postgresql_link_of(VALUE self)
{
    return rb_check_typeddata(self, &link_type);
}

// ---- exchanges

static VALUE db_error(const char *name)
{
    return rb_path2class(name);
}

void postgresql_violated(struct postgresql_link *link, const char *what)
{
    VALUE peer = rb_funcall(link->stream, rb_intern("peer"), 0);
    stream_poison(stream_of(link->stream), "its peer broke the protocol");
    rb_raise(db_error("Heddle::DB::ProtocolError"), "%" PRIsVALUE " %s; the connection is closed", peer, what);
}

bool postgresql_forked(const struct postgresql_link *link)
{
    return link->born != fork_count();
}

void postgresql_leave(struct postgresql_link *link)
{
    link->busy = false; // the exchange is that of a fiber or thread of the parent
    if (!stream_is_closed(link->stream)) stream_poison(stream_of(link->stream), "it belongs to the parent process");
}

RBIMPL_ATTR_NORETURN()
static void refuse_child(struct postgresql_link *link)
{
    VALUE peer = rb_funcall(link->stream, rb_intern("peer"), 0);
    postgresql_leave(link);
    rb_raise(db_error("Heddle::DB::ConnectionLost"),
             "this connection to %" PRIsVALUE
             " belongs to the process that this one was forked from, and is closed here: "
             "connect again in the child, or use a Heddle::DB::Pool, which does so by itself",
             peer);
}

static VALUE exchange_body(VALUE argument)
{
    struct postgresql_exchange *exchange = (struct postgresql_exchange *)argument;
    VALUE result = exchange->body(exchange);
    exchange->complete = true;
    return result;
}

// Memory that a large value needed once is given back.
static void shrink(struct pg_buffer *buffer)
{
    buffer->length = 0;
    if (buffer->capacity <= KEPT_CAPACITY) return;
    xfree(buffer->at);
    buffer->at = NULL;
    buffer->capacity = 0;
}

static VALUE exchange_end(VALUE argument)
{
    const struct postgresql_exchange *exchange = (const struct postgresql_exchange *)argument;
    struct postgresql_link *link = exchange->link;
    link->busy = false;
    link->apart = Qnil;
    if (!stream_is_closed(link->stream)) {
        struct stream *stream = stream_of(link->stream);
        if (link->pending) stream_consume(stream, link->pending);
        if (exchange->bounded) stream_bound(stream, exchange->before);
        if (!exchange->complete && !exchange->unsent) stream_poison(stream, "an exchange did not come to its end");
    }
    link->pending = 0;
    shrink(&link->request);
    shrink(&link->row);
    return Qnil;
}

VALUE postgresql_exchange(struct postgresql_exchange *exchange)
{
    struct postgresql_link *link = exchange->link = postgresql_link_of(exchange->self);
    if (postgresql_forked(link)) refuse_child(link);
    if (link->busy)
        rb_raise(db_error("Heddle::DB::Busy"),
                 "another fiber or thread is in the middle of a query on this connection: give each its own "
                 "(Heddle::DB::Pool), or let them take turns");
    struct stream *stream = stream_of(link->stream);
    link->busy = true;
    link->text = false;
    link->pending = 0;
    link->request.length = 0;
    if (link->span != DEADLINE_NEVER) {
        deadline_t until = deadline_after(deadline_now(), link->span);
        exchange->before = stream_bound(stream, until);
        if (exchange->before < until) stream_bound(stream, exchange->before);
        exchange->bounded = true;
    }
    VALUE result = rb_ensure(exchange_body, (VALUE)exchange, exchange_end, (VALUE)exchange);
    postgresql_settle(exchange->self);
    RB_GC_GUARD(result);
    RB_GC_GUARD(exchange->self);
    return result;
}

VALUE postgresql_exchange_with(VALUE self, VALUE (*body)(struct postgresql_exchange *), VALUE first, VALUE second)
{
    struct postgresql_exchange exchange = {.self = self, .body = body, .arguments = {first, second}};
    return postgresql_exchange(&exchange);
}

// ---- messages in

struct pg_message postgresql_any_message(struct postgresql_link *link)
{
    struct stream *stream = stream_of(link->stream);
    if (link->pending) stream_consume(stream, link->pending);
    link->pending = 0;
    link->apart = Qnil;
    size_t buffered;
    const uint8_t *p = stream_buffered(stream, &buffered);
    if (buffered < PG_HEADER) {
        p = stream_need(stream, PG_HEADER);
        stream_buffered(stream, &buffered);
    }
    struct pg_message message;
    if (pg_message_header(p, p + buffered, &message) != PG_DONE)
        postgresql_violated(link, "sent a message that no PostgreSQL server sends");
    size_t length = message.whole - PG_HEADER;
    if (length >= LARGE_MESSAGE && buffered < message.whole) {
        stream_consume(stream, PG_HEADER);
        link->apart = stream_take(stream, length);
        message.p = (const uint8_t *)RSTRING_PTR(link->apart);
    } else {
        if (buffered < message.whole) p = stream_need(stream, message.whole);
        link->pending = message.whole;
        message.p = p + PG_HEADER;
    }
    message.end = message.p + length;
    return message;
}

static VALUE notice_value(struct pg_message message)
{
    VALUE notice = rb_hash_new();
    struct pg_errors errors;
    uint8_t field;
    struct pg_span value;
    pg_errors_begin(message.p, message.end, &errors);
    while (pg_errors_next(&errors, &field, &value)) {
        char name = (char)field;
        rb_hash_aset(notice, rb_str_new(&name, 1), postgresql_text(value));
    }
    return notice;
}

// Kept until Ruby asks for it. A server that sends without end must not fill the memory.
enum { MESSAGES_KEPT = 10000 };

static void keep(VALUE *list, VALUE value)
{
    if (NIL_P(*list)) *list = rb_ary_new();
    if (RARRAY_LEN(*list) >= MESSAGES_KEPT) rb_ary_shift(*list);
    rb_ary_push(*list, value);
}

// True for messages that may come at any time, which are dealt with here.
static bool is_aside(struct postgresql_link *link, struct pg_message message)
{
    switch (message.type) {
    case PG_NOTICE_RESPONSE:
        if (link->noticing) keep(&link->notices, notice_value(message));
        return true;
    case PG_NOTIFICATION_RESPONSE: {
        struct pg_notification notification;
        if (!pg_notification(message.p, message.end, &notification))
            postgresql_violated(link, "sent a malformed notification");
        keep(&link->messages,
             rb_ary_new_from_args(3, postgresql_utf8(notification.channel), postgresql_utf8(notification.payload),
                                  UINT2NUM(notification.process)));
        return true;
    }
    case PG_PARAMETER_STATUS: {
        struct pg_span name, value;
        if (!pg_parameter_status(message.p, message.end, &name, &value))
            postgresql_violated(link, "sent a malformed setting");
        rb_hash_aset(link->settings, postgresql_utf8(name), postgresql_utf8(value));
        return true;
    }
    default:
        return false;
    }
}

struct pg_message postgresql_message(struct postgresql_link *link)
{
    for (;;) {
        struct pg_message message = postgresql_any_message(link);
        if (!is_aside(link, message)) return message;
    }
}

enum postgresql_arrived postgresql_keep_arrived(struct postgresql_link *link)
{
    enum { RECEIVES_MOST = 64 }; // a server that sends without end must not stop this process
    struct stream *stream = stream_of(link->stream);
    if (link->pending) stream_consume(stream, link->pending);
    link->pending = 0;
    for (int receives = 0; receives < RECEIVES_MOST;) {
        size_t buffered;
        const uint8_t *p = stream_buffered(stream, &buffered);
        struct pg_message message;
        enum pg_parsed parsed = buffered ? pg_message(p, p + buffered, &message) : PG_MORE;
        if (parsed == PG_INVALID) postgresql_violated(link, "sent a message that no PostgreSQL server sends");
        if (parsed == PG_DONE) {
            // Closes that went alone have answers that nobody waits for.
            if (message.type != PG_CLOSE_COMPLETE && !is_aside(link, message)) return POSTGRESQL_MESSAGE;
            stream_consume(stream, message.whole);
            continue;
        }
        enum stream_arrived arrived = stream_receive_arrived(stream);
        if (arrived == STREAM_GONE) return POSTGRESQL_GONE;
        if (arrived == STREAM_NOTHING) return buffered ? POSTGRESQL_PART : POSTGRESQL_NOTHING;
        receives++;
    }
    return POSTGRESQL_PART;
}

// ---- messages out

void postgresql_check(enum pg_written written)
{
    switch (written) {
    case PG_WRITTEN:
        return;
    case PG_NUL_IN_STRING:
        rb_raise(rb_eArgError, "a statement or a text has a NUL in it, which PostgreSQL does not take: bind bytes "
                               "(String#b) to a bytea");
    case PG_TOO_MANY_PARAMETERS:
        rb_raise(rb_eArgError, "more than %d parameters: bind one array instead (… = any(?))", PG_PARAMETERS_MOST);
    case PG_TOO_LONG:
        rb_raise(rb_eArgError, "a value or a statement is longer than the 1 GiB that PostgreSQL takes");
    case PG_NO_ROOM:
        rb_raise(rb_eNoMemError, "a request of this size has no room in memory");
    default:
        rb_raise(rb_eArgError, "the request cannot be written (%d)", (int)written);
    }
}

void postgresql_send(struct postgresql_link *link, uint32_t syncs)
{
    if (link->owed + syncs > POSTGRESQL_IN_FLIGHT)
        rb_raise(rb_eArgError, "more than %d requests at once", POSTGRESQL_IN_FLIGHT);
    postgresql_send_pending_closes(link);
    struct stream *stream = stream_of(link->stream);
    stream_append(stream, link->request.at, link->request.length);
    link->request.length = 0;
    stream_expect(stream, syncs);
    link->owed += syncs;
    link->closes = 0; // they went ahead
}

// ---- closes

struct pg_span postgresql_name_of(const struct postgresql_link *link, uint32_t id, struct postgresql_name *name)
{
    if (!id) return (struct pg_span){name->bytes, 0}; // the unnamed statement
    int length = snprintf((char *)name->bytes, sizeof(name->bytes), "h%u%s", (unsigned)id, link->tag);
    name->length = (size_t)length;
    return (struct pg_span){name->bytes, name->length};
}

void postgresql_close_pending(struct postgresql_pending_closes *pending_closes, uint32_t id)
{
    if (pending_closes->dead) return;
    if (pending_closes->count == pending_closes->capacity) {
        // GC calls this while it frees: nothing here may start another collection. A close that cannot be noted costs
        // the server one statement until the connection ends.
        uint32_t capacity = pending_closes->capacity ? pending_closes->capacity * 2 : 16;
        uint32_t *ids = realloc(pending_closes->ids, capacity * sizeof(*ids));
        if (!ids) return;
        pending_closes->ids = ids;
        pending_closes->capacity = capacity;
    }
    pending_closes->ids[pending_closes->count++] = id;
}

// Statements that GC has freed. Nothing is allocated by Ruby between reading their list and emptying it.
void postgresql_send_pending_closes(struct postgresql_link *link)
{
    struct postgresql_pending_closes *pending_closes = link->pending_closes;
    while (pending_closes->count)
        postgresql_close_later(link, pending_closes->ids[--pending_closes->count]);
}

// Close goes ahead of the next request, and never behind one: after an error the server skips all messages up to the
// next Sync, and would skip the Close.
void postgresql_close_later(struct postgresql_link *link, uint32_t id)
{
    struct postgresql_name name;
    uint8_t bytes[PG_HEADER + 1 + sizeof(name.bytes) + 1];
    struct pg_buffer buffer = {.at = bytes, .capacity = sizeof(bytes)};
    postgresql_check(pg_put_close(&buffer, PG_STATEMENT, postgresql_name_of(link, id, &name)));
    stream_queue_no_reply(stream_of(link->stream), bytes, buffer.length);
    link->closes++;
}

void Init_heddle_postgresql(void)
{
    VALUE db = rb_define_module_under(heddle_module, "DB");
    VALUE postgresql = rb_define_module_under(db, "PostgreSQL");
    postgresql_cLink = rb_define_class_under(postgresql, "Link", rb_cObject);
    rb_gc_register_mark_object(postgresql_cLink);
    rb_define_alloc_func(postgresql_cLink, allocate);
    rb_undef_method(postgresql_cLink, "initialize_copy");
    postgresql_parameters_init();
    postgresql_types_init();
    postgresql_columns_init();
    postgresql_values_init();
    postgresql_results_init();
    postgresql_login_init();
    postgresql_commands_init();
    postgresql_copy_init();
    postgresql_pipeline_init();
}
