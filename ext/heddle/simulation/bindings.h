// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this room.
#ifndef HEDDLE_SIMULATION_BINDINGS_H
#define HEDDLE_SIMULATION_BINDINGS_H

#include <ruby.h>

void Init_heddle_simulation(void);

#endif
