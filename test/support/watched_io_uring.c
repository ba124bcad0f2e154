// An LD_PRELOAD library: checks all that is handed to an io_uring, and makes the kernel refuse everything but polls.
//
// IO_URING_LOG=path: a line for each ring when it is closed, and for each kind of operation that is neither a poll nor
// its removal, or that names memory. IO_URING_REFUSE=polls: the kernel refuses those, too.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned long polls, removals;

static void write_line(const char *text)
{
    const char *path = getenv("IO_URING_LOG");
    int descriptor = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (descriptor < 0 || write(descriptor, text, strlen(text)) < 0) abort();
    close(descriptor);
}

int io_uring_queue_init_params(unsigned entries, struct io_uring *ring, struct io_uring_params *params)
{
    int (*real)(unsigned, struct io_uring *, struct io_uring_params *) = dlsym(RTLD_NEXT, "io_uring_queue_init_params");
    params->flags |= IORING_SETUP_R_DISABLED;
    int result = real(entries, ring, params);
    if (result < 0) return result;
    const char *refused = getenv("IO_URING_REFUSE");
    struct io_uring_restriction allowed[] = {
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_POLL_REMOVE},
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_POLL_ADD},
    };
    unsigned count = refused && strcmp(refused, "polls") == 0 ? 1 : 2;
    // Not through liburing's functions, whose calls a preloaded library does not see.
    if (syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_RESTRICTIONS, allowed, count) < 0 ||
        syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0) {
        abort();
    }
    return result;
}

static void look_at(const struct io_uring_sqe *entry)
{
    // The removal of a poll names its key, in the place of an address. A poll names no address.
    if (entry->opcode == IORING_OP_POLL_REMOVE) {
        removals++;
    } else if (entry->opcode == IORING_OP_POLL_ADD && !entry->addr && !entry->off && !entry->addr3) {
        polls++;
    } else {
        char line[100];
        snprintf(line, sizeof(line), "operation %d, address %llx\n", entry->opcode, (unsigned long long)entry->addr);
        write_line(line);
    }
}

static void look_at_all(struct io_uring *ring)
{
    struct io_uring_sq *queue = &ring->sq;
    for (unsigned place = queue->sqe_head; place != queue->sqe_tail; place++)
        look_at(&queue->sqes[place & queue->ring_mask]);
}

int io_uring_submit_and_get_events(struct io_uring *ring)
{
    int (*real)(struct io_uring *) = dlsym(RTLD_NEXT, "io_uring_submit_and_get_events");
    look_at_all(ring);
    return real(ring);
}

int io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **first, unsigned count,
                                     struct __kernel_timespec *span, sigset_t *mask)
{
    int (*real)(struct io_uring *, struct io_uring_cqe **, unsigned, struct __kernel_timespec *, sigset_t *) =
        dlsym(RTLD_NEXT, "io_uring_submit_and_wait_timeout");
    look_at_all(ring);
    return real(ring, first, count, span, mask);
}

void io_uring_queue_exit(struct io_uring *ring)
{
    void (*real)(struct io_uring *) = dlsym(RTLD_NEXT, "io_uring_queue_exit");
    char line[100];
    snprintf(line, sizeof(line), "%lu polls, %lu ends of polls\n", polls, removals);
    write_line(line);
    real(ring);
}
