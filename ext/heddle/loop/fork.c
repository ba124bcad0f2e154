#include "loop/fork.h"

#include <pthread.h>

static unsigned forks;

static void count_in_child(void)
{
    forks++;
}

void fork_watch(void)
{
    pthread_atfork(0, 0, count_in_child);
}

unsigned fork_count(void)
{
    return forks;
}
