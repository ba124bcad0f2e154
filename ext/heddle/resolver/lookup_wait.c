#include "resolver/lookup_wait.h"

#include "loop/park.h"
#include "scope/deadline_scope.h"
#include "scope/thread_wait.h"
#include "shims.h"

#include <errno.h>

void lookup_wait_submit(struct lookup_wait *waiter, struct lookup *lookup)
{
    if (!waiter->loop && !waiter->own) {
        waiter->own = wakeup_new();
        if (!waiter->own) rb_sys_fail("heddle: cannot make a file descriptor to wait for a name");
        atomic_store(&waiter->own->sleeping, true); // every note must signal
    }
    lookup_submit(lookup, waiter->loop ? waiter->loop->poller.wakeup : waiter->own, 0);
}

// ---- in a loop

static bool answered(struct lookup *const lookups[LOOKUP_WAIT_MOST])
{
    for (int i = 0; i < LOOKUP_WAIT_MOST; i++) {
        if (lookups[i] && lookup_answer(lookups[i])) return true;
    }
    return false;
}

static void expect_all(void *argument, uint64_t key)
{
    struct lookup **lookups = argument;
    for (int i = 0; i < LOOKUP_WAIT_MOST; i++) {
        if (lookups[i]) lookup_expect(lookups[i], key);
    }
}

static void wait_in_loop(struct lookup_wait *waiter, struct pollfd *descriptors, size_t count, int64_t span,
                         struct lookup *lookups[LOOKUP_WAIT_MOST])
{
    // The loop has already taken the note of an answer that came while other fibers ran: no other note would come.
    if (answered(lookups)) return;
    int found = loop_wait_any_or_note(waiter->loop, descriptors, count, span, expect_all, lookups);
    if (found < 0) wait_raise_error(-found, "waiting for a connection");
}

// ---- in a thread

static void take_own_notes(struct wakeup *wakeup)
{
    wakeup_drain(wakeup);
    for (struct wakeup_note *note = wakeup_take(wakeup); note;) {
        struct wakeup_note *next = note->next;
        note->drop(note);
        note = next;
    }
}

static void wait_in_thread(struct lookup_wait *waiter, struct pollfd *descriptors, size_t count, int64_t span)
{
    struct gvl_wait wait = {.descriptors = descriptors, .count = count, .io = Qnil};
    if (waiter->own) descriptors[wait.count++] = (struct pollfd){.fd = waiter->own->reader, .events = POLLIN};
    int found = thread_wait(&wait, deadline_after(deadline_now(), span));
    if (found < 0 && found != -EINTR) rb_syserr_fail(-found, "poll(2)");
    if (found < 0) { // an interrupt, which was raised above, or a spurious return
        for (size_t i = 0; i < count; i++)
            descriptors[i].revents = 0;
    }
    if (waiter->own) take_own_notes(waiter->own);
    deadline_check();
}

void lookup_wait_any(struct lookup_wait *waiter, struct pollfd *descriptors, size_t count, int64_t span,
                     struct lookup *lookups[LOOKUP_WAIT_MOST])
{
    if (waiter->loop) {
        wait_in_loop(waiter, descriptors, count, span, lookups);
    } else {
        wait_in_thread(waiter, descriptors, count, span);
    }
}

void lookup_wait_close(struct lookup_wait *waiter)
{
    if (waiter->own) wakeup_release(waiter->own);
    waiter->own = NULL;
}
