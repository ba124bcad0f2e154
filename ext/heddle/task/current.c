#include "task/current.h"

#include "task/foreign.h"

struct task *task_current(void)
{
    struct loop *loop = place_of_thread().loop;
    if (!loop) return foreign_current_task();
    return loop->owner->self ? task_of_owner(loop->owner) : NULL;
}
