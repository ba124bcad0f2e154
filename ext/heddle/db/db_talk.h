// The talk of a connection with its database: the one place through which all of its requests go, so that one fiber or
// thread at a time makes them. Heddle::DB::Connection has a Heddle::DB::Talk for that.
//
// A connection decides in Ruby what happens before and after a request: who owns a transaction, what a listener is
// told, whether the statement may be sent at all, whether it stays prepared. For most requests the answers are: nobody,
// nothing, yes and no. A room may therefore give its link's class a struct db_usual. Then Talk#query and Talk#execute
// ask for all of that by a few comparisons, and call the room's C functions, within the same turn as any other request.
#ifndef HEDDLE_DB_DB_TALK_H
#define HEDDLE_DB_DB_TALK_H

#include "heddle.h"

// What the driver in Ruby would do for usual statements. The functions that return a bool neither raise nor run Ruby
// code; the others return a Heddle::DB::Result or a Heddle::DB::ServerError.
struct db_usual {
    bool (*is_plain)(VALUE link, VALUE sql); // a String of the kind :plain; false if the driver has to look at it
    // Whether the driver would do nothing but call this link.
    bool (*may_query)(VALUE link); // NULL: never
    VALUE (*query)(VALUE link, VALUE sql, VALUE arguments);
    bool (*may_run)(VALUE link, VALUE prepared);
    VALUE (*run)(VALUE link, VALUE prepared, VALUE arguments);
};

// For all links of that class. Called when the extension is loaded; both are kept for ever.
void db_talk_know(VALUE link_class, const struct db_usual *usual);

void db_talk_init(VALUE db);

#endif
