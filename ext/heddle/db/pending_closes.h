// Statements that are closed here (by Ruby code, by a cache or by the GC), and whose close on the server waits for the
// connection's next request. The connection and each of its statements hold a reference to the list, for they are freed
// in any order. All functions need the GVL.
#ifndef HEDDLE_DB_PENDING_CLOSES_H
#define HEDDLE_DB_PENDING_CLOSES_H

#include <stdbool.h>
#include <stdint.h>

struct pending_closes;

// Makes a list with one reference, the connection's. Raises NoMemoryError.
struct pending_closes *pending_closes_new(void);

// Adds a reference, and returns the list.
struct pending_closes *pending_closes_share(struct pending_closes *pending_closes);

// Gives a reference up; the last one frees the list. Ignores NULL.
void pending_closes_release(struct pending_closes *pending_closes);

// The connection gives its reference up: it is gone, or its server has closed all statements. Nothing is added to the
// list any more. Ignores NULL.
void pending_closes_abandon(struct pending_closes *pending_closes);

// Notes a close. Safe in a finalizer: allocates nothing of Ruby's, and raises nothing. A close for which there is no
// memory is lost: the server keeps that statement until the connection ends, and counts it among those that it allows.
void pending_closes_add(struct pending_closes *pending_closes, uint32_t id);

// Takes the statement that was added last off the list; false if there is none.
bool pending_closes_take(struct pending_closes *pending_closes, uint32_t *id);

uint32_t pending_closes_count(const struct pending_closes *pending_closes);

#endif
