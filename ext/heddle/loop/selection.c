// Waits for several descriptors at once, and for notes of native threads.
#include "loop/internals.h"

#include "loop/park.h"
#include "loop/poll_slices.h"
#include "os/fork.h"

#include <errno.h>
#include <poll.h>

struct selection {
    struct parking parking; // first: for leave_members
    struct pollfd *asked;
    struct loop_wait **members;
    size_t count;
    size_t made;
    bool parked;
    void (*expect)(void *argument, uint64_t key);
    void *argument;
};

static VALUE selection_body(VALUE argument)
{
    struct selection *selection = (struct selection *)argument;
    struct loop *loop = selection->parking.loop;
    for (size_t i = 0; i < selection->count; i++) {
        struct pollfd *asked = &selection->asked[i];
        struct loop_wait *member = wait_acquire(&loop->poller.waits, WAIT_MEMBER);
        selection->members[selection->made++] = member;
        member->parent = selection->parking.wait;
        member->descriptor = asked->fd;
        member->events = asked->events;
        int error = descriptor_arm(&loop->poller, member);
        if (error)
            descriptor_fire(&loop->poller, member, error == EPERM ? asked->events : 0, error == EPERM ? 0 : error);
    }
    selection->parked = true;
    if (selection->expect) selection->expect(selection->argument, wait_key(selection->parking.wait));
    park(&selection->parking);
    return Qnil;
}

// The members point to the wait's record, so they go before it: what the wait raises may be made or reported by Ruby
// code that waits in its turn.
static void leave_members(struct parking *parking)
{
    struct selection *selection = (struct selection *)parking;
    struct loop *loop = parking->loop;
    for (size_t i = 0; i < selection->made; i++) {
        struct loop_wait *member = selection->members[i];
        selection->asked[i].revents = member->revents;
        if (member->error && !parking->error) parking->error = member->error;
        parking_detach(loop, member);
        wait_release(&loop->poller.waits, member);
    }
}

static VALUE unparked(VALUE argument)
{
    struct selection *selection = (struct selection *)argument;
    struct loop *loop = selection->parking.loop;
    if (selection->parked || selection->parking.forks != fork_count()) return Qnil; // the records are the parent's
    leave_members(&selection->parking);
    parking_detach(loop, selection->parking.wait);
    wait_release(&loop->poller.waits, selection->parking.wait);
    return Qnil;
}

// Returns how many are ready now, or -errno.
static int look_at_all(struct loop *loop, struct pollfd *descriptors, size_t count)
{
    loop->statistics.system_calls++;
    int ready = poll_slices(descriptors, (nfds_t)count, 0);
    if (ready < 0) return -errno;
    for (size_t i = 0; i < count; i++)
        descriptors[i].revents = descriptor_answer(descriptors[i].events, descriptors[i].revents);
    return ready;
}

// Waits once, with records of its own.
static void select_once(struct selection *selection)
{
    VALUE holder;
    selection->members = ALLOCV_N(struct loop_wait *, holder, selection->count + 1);
    selection->made = 0;
    selection->parked = false;
    selection->parking.ended = leave_members;
    parking_begin(&selection->parking, selection->count ? WAIT_SELECT : WAIT_NATIVE);
    rb_ensure(selection_body, (VALUE)selection, unparked, (VALUE)selection);
    ALLOCV_END(holder);
}

static int outcome(struct selection *selection)
{
    const struct parking *parking = &selection->parking;
    if (parking->error) return -parking->error;
    int ready = poll_found(selection->asked, selection->count);
    if (ready || parking->completed || selection->count == 0) return ready;
    // Other code ran between the end of the time and now, and may have written.
    return look_at_all(parking->loop, selection->asked, selection->count);
}

int loop_wait_any_or_note(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span,
                          void (*expect)(void *argument, uint64_t key), void *argument)
{
    struct selection selection = {.parking = {.loop = loop, .span = span},
                                  .asked = descriptors,
                                  .count = count,
                                  .expect = expect,
                                  .argument = argument};
    select_once(&selection);
    return outcome(&selection);
}

int loop_wait_any(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span)
{
    struct selection selection = {.parking = {.loop = loop, .span = span}, .asked = descriptors, .count = count};
    do {
        select_once(&selection);
    } while (!parking_over(&selection.parking));
    return outcome(&selection);
}
