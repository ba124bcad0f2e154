// The memory of a fiber's stack. What a fiber once touched stays in memory until the fiber is collected, however little of it
// is still in use: a task that parsed a reply went some pages deeper than one that waits for it.
#ifndef HEDDLE_TASK_FIBER_STACK_H
#define HEDDLE_TASK_FIBER_STACK_H

// Gives back to the system what the calling fiber has touched below here; reads as zeros from then on. For fibers that Ruby
// made (Fiber.new), near their first frame, alone: it relies on the size that Ruby gives to their stacks. Costs a system call,
// and a page fault for each page that is touched again.
void fiber_stack_release(void);

#endif
