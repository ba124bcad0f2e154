// What reports call a thread, by Ruby's own methods whatever the thread's class has made of them: neither code of the
// program runs, nor another thread.
#ifndef HEDDLE_OS_THREAD_LABEL_H
#define HEDDLE_OS_THREAD_LABEL_H

#include <ruby.h>

// "main thread", the thread's name, or nil.
VALUE thread_label(VALUE thread);

// Thread#native_thread_id; 0 if there is none.
long thread_native_id(VALUE thread);

#endif
