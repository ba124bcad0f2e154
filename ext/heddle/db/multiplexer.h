// The connections of a pool that tasks share, and who has a place on which of them: see
// doc/adr/0049-statements-share-connections.md.
//
// A shared connection is one lease of the pool, which lasts while statements have a place on it. It belongs to one
// thread: a task of another one, whose loop may be busy, would keep everybody else waiting.
#ifndef HEDDLE_DB_MULTIPLEXER_H
#define HEDDLE_DB_MULTIPLEXER_H

#include "db/connection.h"

// A shared connection, and the statements in flight on it.
struct line {
    VALUE connection, native, lease, thread;
    VALUE askers; // Array of those whose answers are to come, in their order
    VALUE reader; // the fiber that reads; nil
    const struct db_operations *operations;
    uint64_t abandoned; // the last one of the replies, by their number, that is owed to nobody
    long places;        // statements that are in flight, or have a place and are about to be
    bool sending;       // one of them is about to send the requests of all
    bool closing;       // takes no more statements
};

enum asker_state {
    ASKER_NEW,
    ASKER_WAITS,   // for a place
    ASKER_OPENS,   // is to share another connection
    ASKER_PLACED,  // on its line
    ASKER_REFUSED, // the pool is closed
};

// A statement that needs a place, or has one.
struct asker {
    VALUE line; // or nil
    VALUE thread, fiber;
    VALUE sleepers; // see join.h
    enum asker_state state;
    bool borrows;   // it waits for the pool's connection, or opens it
    uint64_t came;  // the order of those who wait
    unsigned forks; // the process whose books it stands in
};

VALUE asker_new(void);
struct asker *asker_of(VALUE asker);
struct line *line_of(VALUE line);

// The number of the last reply of its connection that was read.
uint64_t line_replied(const struct line *line);

// Returns whether the session of its connection is as all who share it expect.
bool line_is_shareable(const struct line *line);

// Waits for a place, within the pool's limit, and raises what the pool's check-out does. The asker has none in a child
// of a fork that was made meanwhile, in a hook or by a trap handler.
void multiplexer_place(VALUE multiplexer, VALUE asker);

// Takes the asker out of all books, and gives back the connection on which nobody has a place any more. `state` as for
// protect_next.
void multiplexer_leave(VALUE multiplexer, VALUE asker, int *state);

// The Connection that was shared last, which can tell what a statement does, or nil.
VALUE multiplexer_sample(VALUE multiplexer);

// Not rb_ary_delete, which may call ==. Returns whether the list had the object.
bool remove_object(VALUE list, VALUE object);

#endif
