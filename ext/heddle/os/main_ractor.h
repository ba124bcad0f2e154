// Loops, scopes and filters belong to the main Ractor; methods that every Ractor calls ask here.
#ifndef HEDDLE_OS_MAIN_RACTOR_H
#define HEDDLE_OS_MAIN_RACTOR_H

#include <stdbool.h>

// Returns whether the running code belongs to the main Ractor.
bool in_main_ractor(void);

// The first call of a free function (`release`) that changes more than its own record, such as a list: any Ractor may
// sweep, while the main one, whose objects these are, reads that list under a GVL that is not the sweeper's. Returns
// true in another Ractor, where the free function does no more: it is called again for this record, in the main Ractor,
// when that frees the next one.
bool main_ractor_releases(void *record, void (*release)(void *));

// Frees now what other Ractors have swept.
void main_ractor_release_swept(void);

#endif
