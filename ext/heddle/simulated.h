// Chance in a simulation (see simulation/): what the real loop may do in one order or another is drawn from a seed.
#ifndef HEDDLE_SIMULATED_H
#define HEDDLE_SIMULATED_H

#include <stdint.h>

void simulated_seed(uint64_t seed);

// A number from 0 to below - 1.
uint32_t simulated_draw(uint32_t below);

#endif
