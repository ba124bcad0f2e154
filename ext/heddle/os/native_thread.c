#include "os/native_thread.h"

#include <signal.h>
#include <time.h>
#ifdef HEDDLE_HAS_THREAD_SIGNALS
#include <sys/syscall.h>
#include <unistd.h>
#endif

int native_thread_start(void *(*run)(void *), size_t stack)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stack) pthread_attr_setstacksize(&attributes, stack);
    int error = pthread_create(&thread, &attributes, run, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int native_thread_number(void)
{
#ifdef HEDDLE_HAS_THREAD_SIGNALS
    return (int)syscall(SYS_gettid);
#else
    return 0;
#endif
}

enum { SECOND = 1000000000 }; // in nanoseconds

#ifdef HEDDLE_HAS_CONDITION_CLOCK

void native_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

void native_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, deadline_t until)
{
    struct timespec at = {.tv_sec = until / SECOND, .tv_nsec = until % SECOND};
    pthread_cond_timedwait(condition, lock, &at);
}

#else

void native_condition_init(pthread_cond_t *condition)
{
    pthread_cond_init(condition, NULL);
}

// The wall clock may be set back during the wait, so each wait lasts a second at most.
void native_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, deadline_t until)
{
    int64_t span = until - deadline_real();
    if (span <= 0) return;
    if (span > SECOND) span = SECOND;
#ifdef HEDDLE_HAS_RELATIVE_CONDITIONS // macOS
    struct timespec limit = {.tv_sec = span / SECOND, .tv_nsec = span % SECOND};
    pthread_cond_timedwait_relative_np(condition, lock, &limit);
#else
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += (at.tv_nsec + span) / SECOND;
    at.tv_nsec = (at.tv_nsec + span) % SECOND;
    pthread_cond_timedwait(condition, lock, &at);
#endif
}

#endif
