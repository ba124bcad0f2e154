#include "task/fiber_stack.h"

#include <stdint.h>

#ifdef HEDDLE_HAS_LINUX_MADVISE
#include <sys/mman.h>
#include <unistd.h>
#endif

enum {
    // Every fiber has at least twice this many bytes for C, whatever RUBY_FIBER_MACHINE_STACK_SIZE asks for: 16 Ki
    // words. Below the stack's end lie a guard page and another fiber's stack.
    REACH = 8 * 1024 * sizeof(void *),
    // The frames of madvise lie below this frame and are in use while the pages are freed.
    IN_USE = 1024
};

// Not inlined: this frame must lie below all of the caller's.
__attribute__((noinline)) void fiber_stack_release(void)
{
#ifdef HEDDLE_HAS_LINUX_MADVISE // elsewhere MADV_DONTNEED frees nothing, and some stacks grow upwards
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    uintptr_t end = (here - IN_USE) & ~(page - 1), start = (here - REACH) & ~(page - 1);
    // A failure, for locked memory for example, leaves the pages as they are.
    if (start < end) (void)madvise((void *)start, end - start, MADV_DONTNEED);
#endif
}
