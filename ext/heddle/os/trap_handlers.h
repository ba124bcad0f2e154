// Whether a signal may wake what waits: the program has a handler of its own for one (Signal.trap).
#ifndef HEDDLE_OS_TRAP_HANDLERS_H
#define HEDDLE_OS_TRAP_HANDLERS_H

#include <stdbool.h>

bool trap_handlers_set(void);

#endif
