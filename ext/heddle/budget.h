// What may be done without a wait. Only waits fail when a deadline has passed, and only waits let other fibers run: a peer that
// always has something there would outrun every deadline and stop the loop. So work that never waits has a budget, of
// operations and of bytes; a real wait renews it. Implemented in task/budget.c.
#ifndef HEDDLE_BUDGET_H
#define HEDDLE_BUDGET_H

#include "heddle.h"

enum {
    BUDGET_OPERATIONS = 64,
    BUDGET_BYTES = 256 << 10,
    // A byte that is parsed costs more time than one that is only moved, and one to be inflated may become a thousand.
    BUDGET_PARSED = 8,
    BUDGET_PARSED_IN_RUBY = 16,
    BUDGET_INFLATED = 64
};

// An operation has ended without a wait and moved so many bytes. Once the budget is spent: raises what a wait would raise (a passed
// deadline, a cancellation, an interrupt), and lets the scheduler's other fibers have their turn.
void budget_spend(size_t bytes);

// The same at once, for who keeps count.
void budget_give_way(void);

#endif
