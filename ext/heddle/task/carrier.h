// The fibers that tasks run on. A carrier runs one task after another: a fiber that ends keeps its stack until the next
// GC, and each new one pays for maps, page faults and cold caches. Between two tasks nothing of the first is left.
#ifndef HEDDLE_TASK_CARRIER_H
#define HEDDLE_TASK_CARRIER_H

#include "loop/loop.h"
#include "task/task.h"

// Runs the task at once, on an idle carrier if there is one and `fresh` is not asked for. `options`: what Fiber.new takes
// beside its block, or nil. Returns its fiber. Raises Heddle::LimitReached when no fiber can be had.
VALUE carrier_start(struct loop *loop, struct task *task, bool fresh, VALUE options);

// Makes the fiber that starts what other threads post. It is no task: a run does not wait for it.
void inbox_open(struct loop *loop);

// A copy of the current fiber's storage, or nil; Qundef where Ruby (< 3.2) has none.
VALUE fiber_storage(void);

#endif
