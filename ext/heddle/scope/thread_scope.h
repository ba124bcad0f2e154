// Scopes in plain threads, where no loop knows of the waits. One helper thread per process sleeps in C, without the
// GVL, until the earliest instant in a heap, and then raises in the threads whose time is over.
//
// The GVL guards the heap. The helper is woken only for an instant earlier than the one it sleeps for. It ends after a
// second without work, because Ruby detects deadlocks only when all threads wait for ever.
#ifndef HEDDLE_SCOPE_THREAD_SCOPE_H
#define HEDDLE_SCOPE_THREAD_SCOPE_H

#include "scope/scope.h"

// The chain of a thread, which lives as long as the thread. Raises NoMemoryError.
struct scope_chain *thread_scope_chain(VALUE thread);

// Returns whether any thread's scope is open. If not, waits need not look up their thread's chain.
bool thread_scopes_open(void);

// The scope is about to be opened in the thread's chain, or its end was moved. Raises what starting the helper may
// raise, before anything has changed.
void thread_scope_arm(struct scope *scope, struct scope_chain *chain);

// The end of the open scope is about to be moved.
void thread_scope_disarm(struct scope *scope);

// scope_close, for an open scope of a thread.
void thread_scope_close(struct scope *scope);

// Called in the scope's own thread after the scope was closed: removes from the thread's queue an exception that was
// raised and has not arrived, whatever Thread.handle_interrupt says. Raises other interrupts at the end.
void thread_scope_take_back(struct scope *scope);

// Makes the helper call `periodic` at least once a second, until `periodic` returns false; all callers share one
// function. `periodic` has the GVL, and must neither wait, nor raise, nor let another thread run. A child of fork must
// ask again. Raises ThreadError if no thread can be started.
void thread_scope_periodic(bool (*periodic)(deadline_t now));

// Calls `missed`, once for a scope, if its thread still computes so many nanoseconds after its deadline. `place`: the
// thread's backtrace, or nil. `missed` neither waits, nor raises, nor lets another thread run; or NULL.
void thread_scope_watch_misses(void (*missed)(VALUE thread, int64_t late, VALUE place), int64_t limit);

// The helper, or 0.
VALUE thread_scope_helper(void);

#endif
