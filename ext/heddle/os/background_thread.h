// Threads that Heddle makes for the whole process. Ruby gives each new thread the mask of its maker
// (Thread.handle_interrupt), the maker's priority, group and fiber storage. The maker is whoever comes first, and the
// thread outlives what these were meant for: under a mask nothing could end the thread, and the end of the program
// would wait for it.
#ifndef HEDDLE_OS_BACKGROUND_THREAD_H
#define HEDDLE_OS_BACKGROUND_THREAD_H

#include <ruby.h>

// Called by the new thread. Gives it the usual priority, no fiber storage, and the default group, unless the maker's
// group lets no thread go. Raises what interrupts the thread.
void background_thread_settle(void);

// Calls the body without the maker's mask: what interrupts the thread is raised at once.
VALUE background_thread_unmasked(VALUE (*body)(VALUE), VALUE argument);

// Removes the inherited mask, settles the thread, then calls the body.
VALUE background_thread_serve(VALUE (*body)(VALUE), VALUE argument);

#endif
