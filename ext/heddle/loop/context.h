// Where the running code runs: on a loop of ours, under another scheduler, or in a plain thread. Everything that
// waits asks here.
#ifndef HEDDLE_LOOP_CONTEXT_H
#define HEDDLE_LOOP_CONTEXT_H

#include "loop/loop.h"

struct context {
    VALUE scheduler;   // nil in a plain thread
    struct loop *loop; // the scheduler's loop if it is ours; else NULL
};

// The context of the running fiber. A blocking fiber, such as a thread's first one, has no scheduler.
struct context context_of_fiber(void);

// The context of the running thread, even if the running fiber is blocking. A loop of ours runs below any waiting
// fiber.
struct context context_of_thread(void);

// The type of a Heddle::Scheduler is a child of this one; its struct begins with the loop.
extern const rb_data_type_t loop_type;

// The loop of a Heddle::Scheduler; NULL for nil and for another scheduler. Does not enter it.
struct loop *loop_of(VALUE scheduler);

// Like loop_of, but NULL for a subclass of Heddle::Scheduler, which may override hooks.
struct loop *loop_of_plain(VALUE scheduler);

// For hooks: the loop of `self`, entered by the calling thread. Raises as loop_enter does.
struct loop *loop_entered(VALUE self);

#endif
