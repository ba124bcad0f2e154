// The module and the error classes that every part of the extension shares. lib/heddle/core/errors.rb defines and
// documents the errors.
#ifndef HEDDLE_H
#define HEDDLE_H

#include <ruby.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern VALUE heddle_module;
extern VALUE heddle_cFiber;              // Ruby's own; its C API does not export it
extern VALUE heddle_cScheduler;          // Heddle::Scheduler
extern VALUE heddle_mLoop;               // Heddle::Loop, which all schedulers of Heddle's include
extern VALUE heddle_cTask;               // Heddle::Task
extern VALUE heddle_eCancellation;       // raised inside a cancelled task; not a StandardError
extern VALUE heddle_eDeadlineExceeded;   // a wait past its deadline
extern VALUE heddle_eTaskCancelled;      // raised by Task#value of a cancelled task
extern VALUE heddle_eSchedulerMissing;   // spawn without a scheduler
extern VALUE heddle_eSchedulerClosed;    // a hook of a scheduler that was closed
extern VALUE heddle_eWrongThread;        // a scheduler used from a thread that does not own it
extern VALUE heddle_eLimitReached;       // descriptors, memory maps, fibers
extern VALUE heddle_eBackendUnavailable; // HEDDLE_BACKEND names a backend that this kernel or build lacks

// Defines the modules and classes above, and finds the errors.
void heddle_define(void);

// Returns whether rb_protect caught an exception, rather than something that no rescue stops: for Thread#kill, for
// example, Ruby keeps a value of another kind in rb_errinfo.
bool is_exception(VALUE errinfo);

// Calls the running method's block without arguments, for rb_ensure, rb_protect and the like.
VALUE yield_nothing(VALUE unused);

// Active with HEDDLE_DEBUG=1: a wrong assumption crashes at the line that made it.
#ifdef HEDDLE_DEBUG
#define HEDDLE_ASSERT(condition)                                                                          \
    do {                                                                                                  \
        if (!(condition)) rb_bug("heddle: assertion failed: %s (%s:%d)", #condition, __FILE__, __LINE__); \
    } while (0)
#else
#define HEDDLE_ASSERT(condition) ((void)0)
#endif

#endif
