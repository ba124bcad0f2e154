#include "loop/wakeup.h"

#include "portable.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef HEDDLE_HAS_EVENTFD
#include <sys/eventfd.h>
#endif

static int open_ends(struct wakeup *wakeup)
{
#ifdef HEDDLE_HAS_EVENTFD
    int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor >= 0) {
        wakeup->reader = wakeup->writer = descriptor;
        return 0;
    }
    if (errno == EMFILE || errno == ENFILE) return -1; // a pipe would need two
#endif
    int ends[2];
    if (portable_pipe(ends) < 0) return -1;
    wakeup->reader = ends[0];
    wakeup->writer = ends[1];
    return 0;
}

struct wakeup *wakeup_new(void)
{
    struct wakeup *wakeup = calloc(1, sizeof(*wakeup));
    if (!wakeup) return NULL;
    if (open_ends(wakeup) < 0) {
        int saved = errno;
        free(wakeup);
        errno = saved;
        return NULL;
    }
    atomic_store(&wakeup->references, 1);
    return wakeup;
}

struct wakeup *wakeup_retain(struct wakeup *wakeup)
{
    atomic_fetch_add(&wakeup->references, 1);
    return wakeup;
}

void wakeup_release(struct wakeup *wakeup)
{
    if (atomic_fetch_sub(&wakeup->references, 1) > 1) return;
    for (struct wakeup_note *note = wakeup_take(wakeup); note;) {
        struct wakeup_note *next = note->next;
        note->drop(note);
        note = next;
    }
    close(wakeup->reader);
    if (wakeup->writer != wakeup->reader) close(wakeup->writer);
    free(wakeup);
}

void wakeup_signal(struct wakeup *wakeup)
{
    int saved = errno;
    uint64_t one = 1;
    // EAGAIN: the wake-up is signalled already.
    while (write(wakeup->writer, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
    errno = saved;
}

void wakeup_nudge(struct wakeup *wakeup)
{
    if (atomic_load(&wakeup->sleeping)) wakeup_signal(wakeup);
}

void wakeup_post(struct wakeup *wakeup, struct wakeup_note *note)
{
    struct wakeup_note *head = atomic_load(&wakeup->notes);
    do {
        note->next = head;
    } while (!atomic_compare_exchange_weak(&wakeup->notes, &head, note));
    wakeup_nudge(wakeup);
}

struct wakeup_note *wakeup_take(struct wakeup *wakeup)
{
    if (!atomic_load_explicit(&wakeup->notes, memory_order_relaxed)) return NULL;
    struct wakeup_note *newest_first = atomic_exchange(&wakeup->notes, NULL);
    struct wakeup_note *oldest_first = NULL;
    while (newest_first) {
        struct wakeup_note *note = newest_first;
        newest_first = note->next;
        note->next = oldest_first;
        oldest_first = note;
    }
    return oldest_first;
}

void wakeup_drain(struct wakeup *wakeup)
{
    uint64_t bytes[8];
    while (read(wakeup->reader, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes))
        continue;
}
