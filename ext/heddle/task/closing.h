// How a scheduler ends: it waits for its tasks, without limit after a normal end of its thread, otherwise for a bounded
// time.
#ifndef HEDDLE_TASK_CLOSING_H
#define HEDDLE_TASK_CLOSING_H

#include "heddle.h"

// Call it from Scheduler#close, outside of any task: waits for the tasks or cancels them, then closes the loop. Raises
// an interrupt that comes meanwhile, or a task's SystemExit or signal if nothing else ends the thread.
void closing_run(VALUE scheduler);

#endif
