// Tells a loop that it runs in a child of fork, however the fork was made (Process.daemon does not go through
// Process._fork).
#ifndef HEDDLE_OS_FORK_H
#define HEDDLE_OS_FORK_H

void fork_watch(void);     // once, when the extension is loaded
unsigned fork_count(void); // the number of forks between the process that loaded Heddle and this one
unsigned forks_seen(void); // differs after each fork, in the parent too: what was open then, two processes have

#endif
