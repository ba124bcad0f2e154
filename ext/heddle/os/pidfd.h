// A descriptor that becomes readable when a process ends.
#ifndef HEDDLE_OS_PIDFD_H
#define HEDDLE_OS_PIDFD_H

#include <ruby.h>

// Returns -1 with errno if the kernel (< 5.3) or the build has no pidfd, or the process does not exist. Reports exits
// only, not stops (WUNTRACED) or continuations.
int pidfd_of(rb_pid_t pid);

#endif
