// The part of Heddle::DB::Connection that is in C: who may use the connection, and how a statement is run. All requests
// go through it, so that one fiber or thread at a time makes them, each to its end.
//
// A layer gives the class of its drivers' native objects (Protocol, Database) a struct db_operations. Then a statement
// is run by the layer's C functions, and Ruby is called for policy alone: listeners, new statements of the cache,
// statements that may change the session, and whatever a server refuses. Without one (ODBC) the driver's methods in
// Ruby do everything.
#ifndef HEDDLE_DB_CONNECTION_H
#define HEDDLE_DB_CONNECTION_H

#include "heddle.h"

// What the driver in Ruby does by its native object. The functions that return a bool neither raise nor run Ruby code;
// the others return a Heddle::DB::Result or a Heddle::DB::ServerError.
struct db_operations {
    bool (*is_plain)(VALUE native, VALUE sql);       // Driver#kind is :plain; false for a String that it must look at
    bool (*in_transaction)(VALUE native);            // false for a closed connection
    bool (*is_closed)(VALUE native);                 // also in a child of fork
    bool (*is_forked)(VALUE native);                 // it belongs to the parent process
    bool (*may_run)(VALUE native, VALUE prepared);   // Driver#owns?, and Driver#execute would only call `run`
    VALUE (*query)(VALUE, VALUE sql, VALUE args);    // Driver#query of a :plain statement; NULL: the driver does it
    VALUE (*run)(VALUE, VALUE prepared, VALUE args); // Driver#execute; undefined: nothing was run, the driver does it
    VALUE native_class;                              // of connection.c
    const struct db_operations *next;
};

// For all objects of that class. Called when the extension is loaded; both are kept for ever.
void db_operations_of(VALUE native_class, struct db_operations *operations);

void db_connection_define(VALUE db);

#endif
