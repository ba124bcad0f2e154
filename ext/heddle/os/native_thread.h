// Threads that Ruby does not know: they run whichever thread holds the GVL.
#ifndef HEDDLE_OS_NATIVE_THREAD_H
#define HEDDLE_OS_NATIVE_THREAD_H

#include "os/deadline.h"

#include <pthread.h>
#include <stddef.h>

// Starts a detached thread that blocks all signals, which Ruby's threads handle. `stack`: its size in bytes, or 0 for
// the system's default. Returns 0 or an errno.
int native_thread_start(void *(*run)(void *), size_t stack);

// Initializes a condition for native_condition_wait.
void native_condition_init(pthread_cond_t *condition);

// Waits until the condition is signalled, or until that instant. May return earlier, so the caller must check again.
void native_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, deadline_t until);

// The kernel's number of the calling thread, as Thread#native_thread_id has it; 0 where only Linux has one.
int native_thread_number(void);

#endif
