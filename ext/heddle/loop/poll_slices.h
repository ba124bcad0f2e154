// poll(2) for more entries than the kernel accepts. The kernel refuses more than RLIMIT_NOFILE entries; that limit may
// have been lowered after the descriptors were opened, and IO.select may name a descriptor more than once.
#ifndef HEDDLE_LOOP_POLL_SLICES_H
#define HEDDLE_LOOP_POLL_SLICES_H

#include <poll.h>
#include <stddef.h>

// Like poll(2). Polls too many entries in slices: waits for the first slice, which should hold whatever is to wake the
// caller, and polls the others every few milliseconds. A signal does not interrupt a poll that does not wait.
int poll_slices(struct pollfd *asked, nfds_t count, int milliseconds);

// Returns how many entries have found something.
int poll_found(const struct pollfd *asked, size_t count);

#endif
