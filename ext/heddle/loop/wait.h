// The wait record of one parked fiber: what the fiber waits for, and how the wait ended. Records live in slabs that are
// kept for the loop's life, and are recycled with a new generation: a late completion finds a record of another
// generation, or one that is not parked, and has no effect.
//
// While code holds a record of its own (from wait_acquire or parking_begin to park, selection or the release):
// - Call nothing that may raise or throw, unless rb_ensure releases the record: nobody else would. wait_acquire itself,
//   descriptor_arm and every allocation by Ruby may raise NoMemoryError; Ruby code and interrupt checks may raise
//   anything. The `expect` callback (park.h) and a timer's `expire` (timer.h) run inside: neither raises nor runs Ruby.
// - Call nothing that may let another thread or fiber run between the last look at what the fiber waits for and park:
//   the wake-up would come too early (pending_wakeup.h).
// - After a fork the record belongs to the parent (parking.forks): the child must not release it.
// Never keep a pointer to another fiber's record across a call that may switch fibers or threads, because the record
// may be recycled meanwhile: keep its wait_key, and ask wait_find.
#ifndef HEDDLE_LOOP_WAIT_H
#define HEDDLE_LOOP_WAIT_H

#include "cancel/timer.h"

struct loop;
struct wait_owner;

enum wait_kind {
    WAIT_BLOCK,      // a Mutex, a Queue, a join: ended by unblock
    WAIT_SLEEP,      // a sleep: ended by its timer, or by unblock as well
    WAIT_DESCRIPTOR, // ended by the backend
    WAIT_SELECT,     // ended by one of its children, each a WAIT_MEMBER
    WAIT_MEMBER,     // one descriptor of a select; no fiber of its own
    WAIT_HANG_UP,    // interrupts its owner when the descriptor's peer hangs up, see hang_up.h; no fiber of its own
    WAIT_NATIVE,     // ended by a native thread (resolver)
    WAIT_YIELD,      // ready at once: the fiber has yielded
    WAIT_IDLE,       // a worker fiber between two tasks
    WAIT_KINDS
};

// What reports call them; NULL for those in which no fiber of a task waits.
extern const char *const wait_kind_names[WAIT_KINDS];

// What poll(2)'s bits are waited for: "readable".
const char *wait_events_name(int events);

enum { WAIT_WORDS = 256 };

// What a wait is for, in words, as far as plain C knows: not which object a WAIT_BLOCK waits for. `peer`: of
// a WAIT_DESCRIPTOR, see os/peer.h; or empty.
void wait_words(char words[WAIT_WORDS], enum wait_kind kind, int descriptor, int events, const char *peer);

enum wait_state { WAIT_FREE, WAIT_PARKED, WAIT_READY, WAIT_RUNNING };

struct loop_wait {
    struct timer timer;
    VALUE fiber;
    union {
        VALUE blocker;            // the object that a WAIT_BLOCK waits for, for information; or 0
        struct loop_wait *parent; // of a WAIT_MEMBER
    };
    VALUE exception;                     // raised in the fiber when it wakes, unless the wait has completed; or 0
    VALUE value;                         // from loop_resume; or 0
    struct wait_owner *owner;            // where an expiry or a cancellation is raised
    struct loop_wait *prev, *next;       // a wait_list; `next` alone: free list, idle worker fibers
    struct loop_wait *fd_prev, *fd_next; // the other waits for this descriptor
    uint32_t index;
    uint32_t generation;
    deadline_t since; // roughly when the wait began: the time of the last poll; exactly, if it was measured
    deadline_t ready; // when it ended, if that was measured; or 0
    int descriptor;
    short events; // poll(2)'s bits
    short revents;
    uint8_t kind;
    uint8_t state;
    bool timed_out;
    bool completed; // the event that the fiber waited for came
    bool armed;     // the backend knows the wait
    bool indexed;   // fiber_index can find the wait
    bool at_once;   // raise the exception even if the wait has completed
    bool starter;   // ready at the front, because the fiber has started another
    bool measured;  // measure_park was called for it
    int error;      // errno with which the wait failed, or 0
};

// Names a record in places that outlive it (the kernel, a native thread): the generation in the upper half, the index
// in the lower.
static inline uint64_t wait_key(const struct loop_wait *wait)
{
    return (uint64_t)wait->generation << 32 | wait->index;
}

// Raises the errno of a wait as Ruby does for a waiting thread. `doing` describes the operation in the message.
RBIMPL_ATTR_NORETURN()
void wait_raise_error(int error, const char *doing);

// Records in order, linked by prev and next. A record is in one list at most.
struct wait_list {
    struct loop_wait *head, *tail;
};

// `before`: the record of the list that comes behind the new one; or NULL, which appends.
static inline void wait_list_insert(struct wait_list *list, struct loop_wait *wait, struct loop_wait *before)
{
    wait->next = before;
    wait->prev = before ? before->prev : list->tail;
    *(wait->prev ? &wait->prev->next : &list->head) = wait;
    *(before ? &before->prev : &list->tail) = wait;
}

static inline void wait_list_remove(struct wait_list *list, struct loop_wait *wait)
{
    *(wait->prev ? &wait->prev->next : &list->head) = wait->next;
    *(wait->next ? &wait->next->prev : &list->tail) = wait->prev;
    wait->next = wait->prev = NULL;
}

struct wait_slab {
    struct loop_wait **chunks;
    uint32_t chunk_count;
    struct loop_wait *free;
};

// Returns a fresh record in state WAIT_PARKED. Raises NoMemoryError before anything has changed.
struct loop_wait *wait_acquire(struct wait_slab *slab, enum wait_kind kind);
void wait_release(struct wait_slab *slab, struct loop_wait *wait);

// The record of that key, or NULL if it stands for another wait by now.
struct loop_wait *wait_find(const struct wait_slab *slab, uint64_t key);

void wait_slab_each(const struct wait_slab *slab, void (*visit)(struct loop_wait *wait, void *argument),
                    void *argument);
size_t wait_slab_size(const struct wait_slab *slab);
void wait_slab_free(struct wait_slab *slab);

#endif
