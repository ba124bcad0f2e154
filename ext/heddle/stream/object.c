// The object that a Heddle::Stream is.
#include "stream/internals.h"

static void stream_mark(void *pointer)
{
    const struct stream *stream = pointer;
    rb_gc_mark_movable(stream->io);
    rb_gc_mark_movable(stream->tls);
    rb_gc_mark_movable(stream->scratch);
    rb_gc_mark_movable(stream->peer);
    // Only compared; but unmarked, another fiber at the same address could be taken for them.
    rb_gc_mark_movable(stream->author);
    rb_gc_mark_movable(stream->exchanging);
}

static void stream_compact(void *pointer)
{
    struct stream *stream = pointer;
    stream->self = rb_gc_location(stream->self);
    stream->io = rb_gc_location(stream->io);
    stream->tls = rb_gc_location(stream->tls);
    stream->scratch = rb_gc_location(stream->scratch);
    stream->peer = rb_gc_location(stream->peer);
    stream->author = rb_gc_location(stream->author);
    stream->exchanging = rb_gc_location(stream->exchanging);
}

static void stream_release(void *pointer)
{
    struct stream *stream = pointer;
    buffer_release(&stream->in);
    buffer_release(&stream->out);
    buffer_release(&stream->piggybacked);
    xfree(stream); // the socket's own object closes it
}

static size_t stream_memsize(const void *pointer)
{
    const struct stream *stream = pointer;
    return sizeof(*stream) + stream->in.capacity + stream->out.capacity + stream->piggybacked.capacity;
}

static const rb_data_type_t stream_type = {
    .wrap_struct_name = "Heddle::Stream",
    .function = {.dmark = stream_mark, .dfree = stream_release, .dsize = stream_memsize, .dcompact = stream_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

VALUE stream_allocate(VALUE klass)
{
    struct stream *stream;
    VALUE self = TypedData_Make_Struct(klass, struct stream, &stream_type, stream);
    stream->self = self;
    stream->io = stream->tls = stream->scratch = stream->peer = Qnil;
    stream->descriptor = -1;
    stream->read_span = stream->write_span = stream->until = DEADLINE_NEVER;
    return self;
}

struct stream *stream_get(VALUE self)
{
    return rb_check_typeddata(self, &stream_type);
}

struct stream *stream_of(VALUE object)
{
    struct stream *stream = stream_get(object);
    stream_check_open(stream);
    return stream;
}

bool stream_is_closed(VALUE object)
{
    return !stream_is_open(stream_get(object));
}

bool stream_was_interrupted(VALUE object)
{
    return stream_get(object)->interrupted;
}
