// What reports call the thread of a loop: as it was called when the loop began. Asking Ruby may let other threads
// run, which close loops and end traces: at that place nothing has begun yet.
#ifndef HEDDLE_OS_THREAD_LABEL_H
#define HEDDLE_OS_THREAD_LABEL_H

#include <stddef.h>

enum { LABEL = 64 }; // bytes, with a 0 at the end. A multiple of eight

struct thread_label {
    char name[LABEL]; // "main thread", or the thread's name; empty if it has none
    int number;       // the kernel's, or 0
};

// That of the calling thread, by Ruby's own method whatever the thread's class has made of it. May let other threads
// run, and raise what interrupts this one.
struct thread_label thread_label(void);

// Copies as much of a name as there is room for, without cutting a character of UTF-8 in two. The rest of `into` is 0
// already.
void label_copy(char into[LABEL], const char *name, size_t length);

#endif
