// Loops, scopes and filters belong to the main Ractor; methods that every Ractor calls ask here.
#ifndef HEDDLE_OS_MAIN_RACTOR_H
#define HEDDLE_OS_MAIN_RACTOR_H

#include <stdbool.h>

// Returns whether the running code belongs to the main Ractor.
bool in_main_ractor(void);

#endif
