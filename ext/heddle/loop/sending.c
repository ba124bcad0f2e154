// Bytes that leave after the other ready fibers have worked.
#include "loop/internals.h"

#include "loop/send.h"
#include "os/fork.h"

// Nanoseconds that a fiber works between two waits. Below the first, a switch costs more than is gained. Above the
// second next to nothing is gained, and each answer would wait for the work of all the others.
static const int64_t LONG_SLICE = 5000;
static const int64_t TOO_LONG_SLICE = 200000;

bool loop_gains_by_sending_later(const struct loop *loop, int descriptor)
{
    if (!loop->ready.head || !poller_read_by(&loop->poller, descriptor, loop->owner)) return false;
    // The mean turn since the last poll: taking the time of each would cost a look at the clock at each switch.
    int64_t turns = (int64_t)loop->since_poll + 1, passed = deadline_now() - loop->last_poll;
    return passed >= LONG_SLICE * turns && passed < TOO_LONG_SLICE * turns;
}

void loop_send_later(struct loop *loop, struct loop_send *send)
{
    struct parking parking = {.loop = loop, .span = DEADLINE_NEVER, .keeps_result = true, .send = send};
    parking_begin(&parking, WAIT_YIELD);
    parking.wait->completed = true;
    send->next = NULL;
    *(loop->sends ? &loop->last_send->next : &loop->sends) = send;
    loop->last_send = send;
    loop->poller.descriptors[send->descriptor].sends = true;
    park(&parking);
}

void loop_send_waiting(struct loop *loop, int descriptor)
{
    if (!loop->sends || loop->fork_count != fork_count()) return; // in a child: the parent sends
    if (descriptor < 0 || descriptor >= loop->poller.descriptor_capacity) return;
    if (!loop->poller.descriptors[descriptor].sends) return;
    for (struct loop_send *send = loop->sends; send; send = send->next) {
        if (send->descriptor != descriptor) continue;
        send_end(loop, send, false);
        return;
    }
}

void loops_send_waiting(int descriptor)
{
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live)
        loop_send_waiting(loop, descriptor);
}
