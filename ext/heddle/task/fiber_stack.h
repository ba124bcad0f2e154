// The memory of a fiber's stack. Pages that a fiber has touched stay in memory until the fiber is collected, even if
// few of them are still in use: parsing a reply touches some pages deeper than waiting for the reply.
#ifndef HEDDLE_TASK_FIBER_STACK_H
#define HEDDLE_TASK_FIBER_STACK_H

// Returns to the system the stack pages below this call; they read as zeros afterwards. Only for fibers that Ruby made
// (Fiber.new), near their first frame, because it relies on the size of Ruby's stacks. Costs a system call, and a page
// fault for each page that is touched again.
void fiber_stack_release(void);

#endif
