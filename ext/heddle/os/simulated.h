// Chance in a simulation (see simulation/): what the real loop may do in one order or another is drawn from a seed.
#ifndef HEDDLE_OS_SIMULATED_H
#define HEDDLE_OS_SIMULATED_H

#include <stddef.h>
#include <stdint.h>

void simulated_seed(uint64_t seed);

// A number from 0 to below - 1.
uint32_t simulated_draw(uint32_t below);

// A number from 0 to 2^53 - 1 that depends on the seed and on these bytes alone.
uint64_t simulated_draw_for(const char *bytes, size_t length);

// Called in the loop's thread before each switch to a fiber; NULL outside of a simulation. May wake fibers, must not
// wait, and raises nothing but what interrupts the thread.
extern void (*simulated_at_switch)(void);

#endif
