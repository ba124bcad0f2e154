// An unblock that comes before its fiber has parked: between the decision to wait, when Ruby lists the fiber among
// those that wait, and its call of a hook, another thread may run. Such an unblock is kept, at most one a fiber, and
// ends the fiber's next blocking wait at once: Ruby's own callers look again for what they wait for.
#ifndef HEDDLE_LOOP_EARLY_WAKE_H
#define HEDDLE_LOOP_EARLY_WAKE_H

#include "loop/loop.h"

// Ignores what is no living fiber. May raise NoMemoryError.
void early_wake_keep(struct loop *loop, VALUE fiber);

// Whether there was one for the fiber, which is then used up. To be asked only with loop->early_wakes.
bool early_wake_take(struct loop *loop, VALUE fiber);

// Whether one ends this wait, which is about to park: nothing that lets another thread run may come in between. To be
// asked in the fiber, only with loop->early_wakes. Uses up what is there for such a wait.
bool early_wake_ends(struct loop *loop, const struct loop_wait *wait);

// For a new loop.
VALUE early_wake_name(void);

#endif
