// Threads that Ruby does not know, for what must go on whoever holds Ruby's lock.
#ifndef HEDDLE_OS_NATIVE_THREAD_H
#define HEDDLE_OS_NATIVE_THREAD_H

#include "deadline.h"

#include <pthread.h>
#include <stddef.h>

// Starts one, detached, that takes no signals: they are Ruby's threads' business. `stack`: its bytes, or 0 for the system's
// choice. Returns 0 or an errno.
int native_thread_start(void *(*run)(void *), size_t stack);

// A condition for native_condition_wait.
void native_condition_init(pthread_cond_t *condition);

// Waits until the condition is signalled, or until that instant; sometimes ends earlier, so that the caller has to look again.
void native_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, deadline_t until);

#endif
