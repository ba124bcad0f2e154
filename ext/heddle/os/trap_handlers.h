// Handlers of signals that the program has set (Signal.trap).
#ifndef HEDDLE_OS_TRAP_HANDLERS_H
#define HEDDLE_OS_TRAP_HANDLERS_H

#include <stdbool.h>

// Returns whether a signal may wake a waiting fiber: the program has set a handler of its own.
bool trap_handlers_set(void);

// Returns whether the calling code runs in a trap handler.
bool trap_handler_runs(void);

#endif
