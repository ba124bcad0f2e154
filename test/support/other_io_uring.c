// An LD_PRELOAD library: an io_uring with fewer features than this kernel's.
//
// IO_URING_OF=5.15: no IORING_SETUP_SINGLE_ISSUER and no IORING_SETUP_DEFER_TASKRUN, which came with 6.0 and 6.1.
// IO_URING_OF=5.10: no timeout of a wait's own either (5.11).
// IO_URING_ENTRIES=2: room for that many submissions, and twice as many completions.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>

enum { SINCE_6_1 = 1U << 12 | 1U << 13, EXT_ARG = 1U << 8 };

int io_uring_queue_init_params(unsigned entries, void *ring, struct io_uring_params *params)
{
    int (*real)(unsigned, void *, struct io_uring_params *) = dlsym(RTLD_NEXT, "io_uring_queue_init_params");
    const char *kernel = getenv("IO_URING_OF"), *wanted = getenv("IO_URING_ENTRIES");
    if (kernel && params->flags & SINCE_6_1) return -EINVAL;
    int result = real(wanted ? (unsigned)atoi(wanted) : entries, ring, params);
    if (kernel && strcmp(kernel, "5.10") == 0) params->features &= ~EXT_ARG;
    return result;
}
