// The waits of one thread for descriptors: the records, a backend that reports which descriptors are ready, and the way
// to wake the thread while it polls. Knows neither a ready queue nor timers: each wait that ends is handed to `wake`.
#ifndef HEDDLE_LOOP_POLLER_H
#define HEDDLE_LOOP_POLLER_H

#include "loop/backend.h"
#include "loop/wait.h"
#include "loop/wakeup.h"

struct descriptor {
    struct loop_wait *waits; // all waits for this descriptor
    uint32_t reader;         // identifies who has read last, see poller_note_read; or 0
    bool drained;            // the last read emptied the socket, so that the next one would find nothing yet
    bool sends;              // bytes for it wait in the loop's list, see struct loop_send
    short asked;             // what its waits ask for; perhaps more, until an event comes that nobody asks for
};

struct poller {
    // Called with the GVL, and from any thread if a descriptor is closed there. Must neither raise nor run Ruby code.
    void (*wake)(struct poller *poller, struct loop_wait *wait);

    const struct backend *backend;
    void *backend_state; // NULL unless the poller is open
    struct wakeup *wakeup;
    struct wait_slab waits;
    struct descriptor *descriptors;
    int descriptor_capacity;
    uint64_t system_calls;                // made to ask the backend for events
    struct poller *next_open;             // next in the list of all open pollers
    unsigned forks;                       // fork_count() when it was opened: identifies the process that it belongs to
    _Atomic(_Atomic(deadline_t) *) woken; // gets the time at which the backend's wait ended, without the GVL; or NULL
};

// ---- life

// Opens poller->backend for the calling thread. Raises SystemCallError and NoMemoryError, and then leaves nothing open.
void poller_open(struct poller *poller);

// Closes all descriptors of an open poller. `forked`: they were opened in the parent of this process.
void poller_close(struct poller *poller, bool forked);

// In a child of fork: closes the child's descriptors of all pollers.
void pollers_discard_parents(void);

// In a child of fork: closes, and forgets the parent's waits without freeing them, because records of the parent's
// fibers point there.
void poller_discard(struct poller *poller);

// Frees the records of a closed poller.
void poller_free(struct poller *poller);
size_t poller_memsize(const struct poller *poller);

// ---- polling

// Polls the kernel for at most `timeout` nanoseconds, which is until the instant `until`, and ends the waits that have
// something, including those that a native thread's note ends. Releases the GVL only to wait; an interrupt ends that
// and stays pending. Returns the number of events and notes, or -1 if nothing was polled, because Ruby refused to
// release the GVL.
int poller_poll(struct poller *poller, int64_t timeout, deadline_t until);

// ---- descriptors.c

// The events of `asked` that `found` answers: an error or a hang-up answers all of them, and the next read or write
// reports it.
short descriptor_answer(short asked, short found);

// Asks the backend for a wait that is linked to its descriptor. Returns what the backend's `arm` does.
int descriptor_ask(const struct poller *poller, struct loop_wait *wait);

// Links the wait, and asks for it. Returns 0, or the errno that the wait ends with at once. May raise NoMemoryError;
// descriptor_leave undoes the linking.
int descriptor_arm(struct poller *poller, struct loop_wait *wait);

// Removes every pointer to the record, and tells the backend. Does nothing for a wait without a descriptor.
void descriptor_leave(struct poller *poller, struct loop_wait *wait);

// Ends the wait with these events or this errno.
void descriptor_fire(struct poller *poller, struct loop_wait *wait, short revents, int error);

// The new size of a table indexed by descriptors that is too small for this one. Grows by an eighth, not twofold: each
// page that is cleared is memory in use.
static inline int poller_table_capacity(int descriptor)
{
    return descriptor + descriptor / 8 + 64;
}

// Returns whether the last read emptied the socket, so that waiting comes before reading. A guess; if it is wrong, the
// wait is short.
bool poller_drained(const struct poller *poller, int descriptor);

// Returns whether this reader was the last one that read. A guess: it may be another reader at the same address.
bool poller_read_by(const struct poller *poller, int descriptor, const void *reader);
void poller_note_read(struct poller *poller, int descriptor, const void *reader, bool drained);

// Before the descriptor is closed: the next file with its number has no reader yet.
void poller_forget_reader(struct poller *poller, int descriptor);

// Any thread. The descriptor is about to be closed: ends every wait for it, in any poller of this process, with
// ECANCELED.
void pollers_descriptor_closing(int descriptor);

// ---- fall_back.c

// The backend's wait failed with this errno: opens the next best backend and arms all waits there. Raises
// SystemCallError when no backend is left.
void poller_fall_back(struct poller *poller, int error);

// ---- called by backends while they collect
void poller_descriptor_ready(struct poller *poller, int descriptor, short revents);
// Returns whether a wait was found for the key.
bool poller_wait_ready(struct poller *poller, uint64_t key, short revents, int error);
void poller_signalled(struct poller *poller);
// Ends every wait for this descriptor with this errno.
void poller_descriptor_gone(struct poller *poller, int descriptor, int error);

#endif
