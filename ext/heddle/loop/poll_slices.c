#include "loop/poll_slices.h"

#include "os/deadline.h"
#include "os/poll_at_once.h"

#include <errno.h>
#include <sys/resource.h>

enum { PAUSE = 5 }; // milliseconds between two polls of the slices that are not waited for

static nfds_t most_entries(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == 0) return 1;
    return (nfds_t)limit.rlim_cur;
}

static int look_at_all(struct pollfd *asked, nfds_t count, nfds_t most)
{
    int found = 0;
    for (nfds_t from = 0; from < count; from += most) {
        nfds_t entries = count - from < most ? count - from : most;
        int ready = poll_at_once(asked + from, entries);
        if (ready < 0) return -1;
        found += ready;
    }
    return found;
}

int poll_slices(struct pollfd *asked, nfds_t count, int milliseconds)
{
    int found = milliseconds ? poll(asked, count, milliseconds) : poll_at_once(asked, count);
    nfds_t most;
    if (found >= 0 || errno != EINVAL || (most = most_entries()) >= count) return found;
    deadline_t until =
        deadline_after(deadline_now(), milliseconds < 0 ? DEADLINE_NEVER : milliseconds * INT64_C(1000000));
    for (;;) {
        found = look_at_all(asked, count, most);
        if (found || milliseconds == 0 || deadline_now() >= until) return found;
        if (poll(asked, most, milliseconds > 0 && milliseconds < PAUSE ? milliseconds : PAUSE) < 0) return -1;
    }
}

int poll_found(const struct pollfd *asked, size_t count)
{
    int found = 0;
    for (size_t i = 0; i < count; i++)
        found += asked[i].revents != 0;
    return found;
}
