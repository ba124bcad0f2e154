// A budget for work that never waits. Only waits fail at a passed deadline, and only waits let other fibers run: a peer
// that always has data ready would outrun every deadline and stop the loop. So such work has a budget of operations and
// of bytes, and a real wait renews the budget. Implemented in task/budget.c.
#ifndef HEDDLE_OS_BUDGET_H
#define HEDDLE_OS_BUDGET_H

#include "heddle.h"

enum {
    BUDGET_OPERATIONS = 64,
    BUDGET_BYTES = 256 << 10,
    // Parsing a byte costs more time than moving it, and inflating a byte may produce a thousand.
    BUDGET_PARSED = 8,
    BUDGET_PARSED_IN_RUBY = 16,
    BUDGET_INFLATED = 64
};

// An operation ended without a wait and moved this many bytes. Once the budget is spent: raises what a wait would raise
// (a passed deadline, a cancellation, an interrupt), and gives the scheduler's other fibers their turn.
void budget_spend(size_t bytes);

// Gives the scheduler's other fibers their turn, and raises what a wait would raise.
void budget_give_way(void);

// Like budget_spend with the budget spent, for callers that keep count themselves: C code that may go on for long, and
// never comes to the end of Ruby's time slice. So other threads have a turn, too, now and then.
void budget_give_way_to_all(void);

#endif
