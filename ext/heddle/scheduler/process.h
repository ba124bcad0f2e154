// Waiting for child processes.
#ifndef HEDDLE_SCHEDULER_PROCESS_H
#define HEDDLE_SCHEDULER_PROCESS_H

#include "loop/loop.h"

// The Process::Status of one child (`pid` > 0), or of any or of a group (`pid` <= 0, as waitpid), with waitpid's flags.
// One child is awaited by a pidfd. For the rest a Ruby thread waits: nothing here ever reaps a child that was not asked
// for.
VALUE process_wait(struct loop *loop, rb_pid_t pid, int flags);

#endif
