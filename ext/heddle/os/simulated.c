#include "os/simulated.h"

static uint64_t seed, state;

void (*simulated_at_switch)(void);

void simulated_seed(uint64_t new_seed)
{
    seed = state = new_seed;
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
uint32_t simulated_draw(uint32_t below)
{
    return (uint32_t)(mix(state += 0x9e3779b97f4a7c15) % below);
}

// FNV-1a (Fowler, Noll, Vo), mixed.
uint64_t simulated_draw_for(const char *bytes, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325 ^ mix(seed);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3;
    return mix(hash) >> 11;
}
