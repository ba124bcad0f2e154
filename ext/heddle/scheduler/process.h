// Waits for child processes.
#ifndef HEDDLE_SCHEDULER_PROCESS_H
#define HEDDLE_SCHEDULER_PROCESS_H

#include "loop/loop.h"

// Returns the Process::Status of one child (`pid` > 0), or of any child or a group (`pid` <= 0, as for waitpid), with
// waitpid's flags. Waits for one child through a pidfd; for the rest a Ruby thread waits. Never reaps a child that the
// caller did not ask for. When a wait of IO#close and the like is ended, which also holds for one that io_close holds
// back, the child is reaped as soon as it ends.
VALUE process_wait(struct loop *loop, rb_pid_t pid, int flags);

#endif
