// Scopes in plain threads, where no loop knows of the waits: one helper thread for the process sleeps in C, without the
// GVL, until the earliest instant of a heap, and raises in threads whose time is over.
//
// The heap is guarded by the GVL. The helper is woken only for an instant that is earlier than the one it sleeps for;
// it ends when it had nothing to do for a second, since Ruby looks for deadlocks only when all threads wait for ever.
#ifndef HEDDLE_SCOPE_THREAD_SCOPE_H
#define HEDDLE_SCOPE_THREAD_SCOPE_H

#include "scope/scope.h"

// The chain of a thread, which lives as long as it does. Raises NoMemoryError.
struct scope_chain *thread_scope_chain(VALUE thread);

// Whether any is open. Without one, waits need not ask for their thread's chain.
bool thread_scopes_open(void);

// After a scope was closed, in its own thread: what was raised and has not arrived is taken out of the thread's queue,
// whatever Thread.handle_interrupt says. Other interrupts that arrive meanwhile are raised.
void thread_scope_take_back(struct scope *scope);

// Has the helper call `periodic` now and again, at least once a second, until it returns false; there is one for all who
// ask. It has the GVL, and must neither wait, nor raise, nor let another thread run. Not in a child of fork, where it
// is to be asked for anew. Raises ThreadError when no thread can be started.
void thread_scope_periodic(bool (*periodic)(deadline_t now));

// The helper, or 0.
VALUE thread_scope_helper(void);

#endif
