#include "os/pidfd.h"

#include <errno.h>
#include <unistd.h>
#ifdef HEDDLE_HAS_PIDFD
#include <sys/syscall.h>
#endif

int pidfd_of(rb_pid_t pid)
{
#ifdef HEDDLE_HAS_PIDFD
    return (int)syscall(SYS_pidfd_open, pid, 0); // close-on-exec by default
#else
    (void)pid;
    errno = ENOSYS;
    return -1;
#endif
}
