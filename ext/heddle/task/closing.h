// How a scheduler ends: it waits for what is scheduled, for ever after a normal end of its thread, else for a bounded
// time.
#ifndef HEDDLE_TASK_CLOSING_H
#define HEDDLE_TASK_CLOSING_H

#include "heddle.h"

// In a call of Scheduler#close, outside of any task: ends what is scheduled, then closes the loop. Raises an interrupt
// that comes meanwhile, and the SystemExit or signal of a task where nothing else ends the thread.
void closing_run(VALUE scheduler);

// Outside of any task, with the scheduler set on this thread: cancels what is scheduled, waits for its end and closes the loop. Returns nil.
VALUE closing_cancel(VALUE scheduler);

#endif
