// Bytes that leave after the other ready fibers have worked, so that the bytes of all of them leave one
// right after the other: the peer's process is woken once, and the processor's caches change between Ruby's work and
// the kernel's once, instead of for each fiber.
#ifndef HEDDLE_LOOP_SEND_H
#define HEDDLE_LOOP_SEND_H

#include "loop/loop.h"

// On the stack of the fiber that sends. At most one for a descriptor.
struct loop_send {
    struct loop_send *next;
    int descriptor;
    bool done;
    void (*send)(struct loop_send *send); // sends without a wait; must neither raise nor run other fibers
};

// Returns whether the running fiber had better send later: other fibers are ready, their work between two waits takes
// about as long as what is gained, and the fiber's owner was the last to read from the socket, so that the bytes are an
// answer. Other bytes are sent at once: the code that started the fiber may expect them, or shut the socket down.
bool loop_gains_by_sending_later(const struct loop *loop, int descriptor);

// Lets the other ready fibers run. The bytes have been sent when this returns, and also when it raises.
void loop_send_later(struct loop *loop, struct loop_send *send);

// To be called before other bytes follow: sends what waits for this descriptor.
void loop_send_waiting(struct loop *loop, int descriptor);

// Any thread. The same in all loops, before the descriptor is closed.
void loops_send_waiting(int descriptor);

#endif
