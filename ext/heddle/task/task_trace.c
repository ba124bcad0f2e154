#include "task/task_trace.h"

#include "loop/loop.h"
#include "loop/trace.h"

#include <string.h>

static VALUE place_of(VALUE block)
{
    if (!RTEST(rb_obj_is_proc(block))) return Qnil;
    VALUE place = rb_funcall(block, rb_intern("source_location"), 0); // nil for a block of C code
    if (NIL_P(place)) return Qnil;
    VALUE file = rb_ary_entry(place, 0);
    const char *path = RSTRING_PTR(file), *end = path + RSTRING_LEN(file), *name = end;
    while (name > path && name[-1] != '/')
        name--;
    return rb_sprintf("%.*s:%" PRIsVALUE, (int)(end - name), name, rb_ary_entry(place, 1));
}

void task_trace_start(struct task *task)
{
    VALUE name = NIL_P(task->name) ? place_of(task->block) : task->name;
    struct trace_ring *ring = task->owner.loop->trace; // the trace may have ended meanwhile
    if (!ring) return;
    size_t length = RB_TYPE_P(name, T_STRING) ? (size_t)RSTRING_LEN(name) : 0;
    if (length > TRACE_NAME) length = TRACE_NAME;
    struct trace_event start = {
        .at = deadline_now(), .kind = TRACE_START, .task = task->owner.number, .second = length, .descriptor = -1};
    trace_put(ring, &start, length ? RSTRING_PTR(name) : NULL, length);
    RB_GC_GUARD(name);
}

void task_trace_end(const struct task *task)
{
    struct trace_event end = {.at = deadline_now(),
                              .kind = TRACE_END,
                              .what = (uint8_t)task->status,
                              .task = task->owner.number,
                              .descriptor = -1};
    trace_put(task->owner.loop->trace, &end, NULL, 0);
}
