// poll(2) for more entries than it takes: the kernel refuses more than RLIMIT_NOFILE, which may have been lowered after
// the descriptors were opened, and of which IO.select may name each more than once.
#ifndef HEDDLE_LOOP_POLL_NOW_H
#define HEDDLE_LOOP_POLL_NOW_H

#include <poll.h>

// As poll(2). Where there are too many entries, it looks at them in slices: the first, which should hold whatever is to
// wake the caller, is waited for, the others are looked at every few milliseconds.
int poll_slices(struct pollfd *asked, nfds_t count, int milliseconds);

#endif
