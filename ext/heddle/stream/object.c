// The object that a Heddle::Stream is.
#include "stream/internals.h"

#include "references.h"

static void stream_references(void *pointer, reference_function *each)
{
    struct stream *stream = pointer;
    each(&stream->self);
    each(&stream->io);
    each(&stream->tls);
    each(&stream->scratch);
    each(&stream->peer);
    // Only compared; but unmarked, another fiber at the same address could be taken for them.
    each(&stream->author);
    each(&stream->exchanging);
}

REFERENCES(stream)

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
