// Worker fibers: the fibers that tasks run on. A worker fiber runs one task after another, because a fiber that ends
// keeps its stack until the next GC, and each new fiber pays for memory maps, page faults and cold caches. A task
// leaves nothing on its worker fiber for the next task.
#ifndef HEDDLE_TASK_WORKER_FIBER_H
#define HEDDLE_TASK_WORKER_FIBER_H

#include "loop/loop.h"
#include "task/task.h"

// When the caller of an external task's start continues. Code that stands for the library's own loop (outside of any
// task, or an object that was pushed) continues as soon as the external task waits, because in that library a fiber
// that waits switches to the loop. Async 2.23 wakes all waiters of a notification this way, one after the other.
enum resume_order order_beside_external(const struct loop *loop);

// Runs the task at once, on an idle worker fiber if there is one and `fresh` is false. `options`: keywords for
// Fiber.new, or nil. Returns the task's fiber. Raises Heddle::LimitReached if the system has no room for another fiber.
VALUE worker_fiber_start(struct loop *loop, struct task *task, bool fresh, VALUE options);

// Runs the task behind all fibers that are ready now, on an idle worker fiber; makes one if there is none. Raises
// FiberError if the system has no room for another fiber.
void worker_fiber_queue(struct loop *loop, struct task *task);

// Makes the inbox: the fiber that starts tasks that other threads post. The inbox is not a task: no run waits for it.
void inbox_open(struct loop *loop);

// A copy of the current fiber's storage, or nil; Qundef before Ruby 3.2, which has no Fiber#storage.
VALUE fiber_storage(void);

#endif
