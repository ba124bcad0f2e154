// A descriptor of a native thread, which works while Ruby code runs. Other code may close any descriptor behind our
// back, and its number may name another file by then: before each use, the file's identity tells whether it is still
// ours. What happens between that look and the use cannot be excluded; it is a moment, not the thread's life.
#ifndef HEDDLE_OS_OWN_DESCRIPTOR_H
#define HEDDLE_OS_OWN_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/types.h>

struct own_descriptor {
    int number; // or -1
    dev_t device;
    ino_t file;
};

// `number`: a descriptor that was opened just now, or -1.
struct own_descriptor own_descriptor(int number);

bool own_descriptor_valid(const struct own_descriptor *own);

// Closes it if it is still ours. Returns 0 or an errno.
int own_descriptor_close(struct own_descriptor *own);

#endif
