// The hook io_select.
#include "scheduler/bindings.h"

#include "loop/interrupt.h"
#include "loop/park.h"
#include "loop/poll_slices.h"
#include "loop/without_wait.h"
#include "shims.h"
#include "task/task_loop.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static long add_all(struct pollfd *asked, VALUE ios, short events)
{
    if (NIL_P(ios)) return 0;
    long count = RARRAY_LEN(ios);
    for (long i = 0; i < count; i++) {
        VALUE io = rb_io_get_io(rb_ary_entry(ios, i));
        if (events == POLLOUT) io = rb_io_get_write_io(io);
        asked[i] = (struct pollfd){.fd = rb_io_descriptor(io), .events = events};
    }
    return count;
}

// The third list, whose descriptors come last: without a scheduler only urgent data counts there. A descriptor that has
// hung up leaves the list, because it would end each wait. Returns how many are ready.
static int keep_urgent(struct loop *loop, struct pollfd *asked, VALUE ios)
{
    int ready = 0;
    for (long i = 0; !NIL_P(ios) && i < RARRAY_LEN(ios);) {
        if (!asked[i].revents || (asked[i].revents = loop_urgent(loop, asked[i].fd, POLLPRI))) {
            ready += asked[i++].revents != 0;
            continue;
        }
        rb_ary_delete_at(ios, i);
        memmove(asked + i, asked + i + 1, (size_t)(RARRAY_LEN(ios) - i) * sizeof(*asked));
    }
    return ready;
}

// Bytes that Ruby has read ahead make an IO readable, whatever the kernel says.
static bool buffered(VALUE ios, VALUE ready)
{
    for (long i = 0; !NIL_P(ios) && i < RARRAY_LEN(ios); i++) {
        VALUE io = rb_ary_entry(ios, i);
        rb_io_t *file;
        GetOpenFile(rb_io_get_io(io), file);
        if (rb_io_read_pending(file)) rb_ary_push(ready, io);
    }
    return RARRAY_LEN(ready) > 0;
}

static VALUE ready_of(const struct pollfd *asked, VALUE ios)
{
    VALUE ready = rb_ary_new();
    for (long i = 0; !NIL_P(ios) && i < RARRAY_LEN(ios); i++) {
        if (asked[i].revents) rb_ary_push(ready, rb_ary_entry(ios, i));
    }
    return ready;
}

static int select_in_time(struct loop *loop, struct pollfd *asked, long others, VALUE exceptables, int64_t span)
{
    deadline_t until = deadline_after(deadline_now(), span);
    for (;;) {
        long urgents = NIL_P(exceptables) ? 0 : RARRAY_LEN(exceptables);
        int found = loop_wait_any(loop, asked, (size_t)(others + urgents), span);
        if (found < 0) wait_raise_error(-found, "waiting for an IO");
        if (found == 0 || urgents == 0) return found;
        found = poll_found(asked, (size_t)others) + keep_urgent(loop, asked + others, exceptables);
        if (found) return found;
        if (span != DEADLINE_NEVER) span = until - deadline_now();
        if (span <= 0) return 0;
    }
}

static VALUE list_of(VALUE ios)
{
    if (NIL_P(ios)) return Qnil;
    Check_Type(ios, T_ARRAY);
    return rb_ary_dup(ios); // another fiber may change the Array during the wait
}

/*
 * call-seq: scheduler.io_select(readables, writables, exceptables, timeout = nil) -> [Array, Array, Array] or nil
 *
 * IO.select that parks only the calling fiber.
 */
static VALUE io_select(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 1, 4);
    struct loop *loop = loop_entered(self);
    VALUE readables = list_of(argv[0]), writables = list_of(argc > 1 ? argv[1] : Qnil),
          exceptables = list_of(argc > 2 ? argv[2] : Qnil);
    int64_t span = deadline_span_of_ruby(argc > 3 ? argv[3] : Qnil);
    VALUE ready_now = rb_ary_new();
    bool has_buffered = buffered(readables, ready_now);

    long total = (NIL_P(readables) ? 0 : RARRAY_LEN(readables)) + (NIL_P(writables) ? 0 : RARRAY_LEN(writables)) +
                 (NIL_P(exceptables) ? 0 : RARRAY_LEN(exceptables));
    VALUE holder;
    struct pollfd *asked = ALLOCV_N(struct pollfd, holder, total + 1);
    long reads = add_all(asked, readables, POLLIN);
    long writes = add_all(asked + reads, writables, POLLOUT);
    long others = reads + writes, count = others + add_all(asked + others, exceptables, POLLPRI);
    // Ready IOs need no wait; a wait would fail once a deadline has passed.
    bool looks = has_buffered || span == 0 || owner_pending(loop->owner);
    int found = looks ? poll_slices(asked, (nfds_t)count, 0) : 0;
    if (found < 0) rb_sys_fail("IO.select");
    if (found) found = poll_found(asked, (size_t)others) + keep_urgent(loop, asked + others, exceptables);
    if (found || has_buffered || span == 0) {
        loop_use_budget(loop);
    } else {
        found = select_in_time(loop, asked, others, exceptables, span);
    }
    if (found == 0 && !has_buffered) {
        ALLOCV_END(holder);
        return Qnil;
    }
    VALUE readable = ready_of(asked, readables);
    for (long i = 0; i < RARRAY_LEN(ready_now); i++) {
        VALUE io = rb_ary_entry(ready_now, i);
        if (!RTEST(rb_ary_includes(readable, io))) rb_ary_push(readable, io);
    }
    VALUE result =
        rb_ary_new_from_args(3, readable, ready_of(asked + reads, writables), ready_of(asked + others, exceptables));
    ALLOCV_END(holder);
    return result;
}

void io_select_define(VALUE scheduler_class)
{
    rb_define_method(scheduler_class, "io_select", io_select, -1);
}
