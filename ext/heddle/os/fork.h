// Tells a loop that it woke up in a child of fork, however that was called (Process.daemon does not go through
// Process._fork).
#ifndef HEDDLE_OS_FORK_H
#define HEDDLE_OS_FORK_H

void fork_watch(void);     // once, when the extension is loaded
unsigned fork_count(void); // how many forks lie between the process that loaded us and this one

#endif
