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

#include "os/deadline.h"

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
    // For Heddle::DB::Multiplexer; `ask` is NULL where the driver cannot have statements of several tasks in flight.
    bool (*may_share)(VALUE native, VALUE sql, VALUE arguments); // the statement leaves nothing in the session
    bool (*is_shareable)(VALUE native); // the session is in no transaction, and as every user expects it
    // Writes the request of such a statement, whose answer will be the next one behind those that are owed, and does
    // not wait; `begins` is its place among the bytes of the stream. Returns how many replies the answer is, behind any
    // others; 0, and writes nothing, if `refused` becomes true in Ruby code that makes the values. Raises for the
    // caller's fault.
    uint32_t (*ask)(VALUE native, VALUE sql, VALUE arguments, const bool *refused, uint64_t *begins);
    // Reads the next answer; undefined: the server has not begun the statement, which the driver may run otherwise.
    VALUE (*answer)(VALUE native, VALUE sql);
    void (*drop)(VALUE native); // reads the next reply, or what is left of it, for nobody
    // What the answer left to be asked of the server; undefined for nothing. To be settled once no answer is owed. NULL
    // where an answer says all.
    VALUE (*unsettled)(VALUE native);
    void (*settle)(VALUE native, VALUE unsettled, deadline_t until);
    VALUE native_class; // of connection.c
    const struct db_operations *next;
};

// For all objects of that class. Called when the extension is loaded; both are kept for ever.
void db_operations_of(VALUE native_class, struct db_operations *operations);

// Those of a native object, or NULL.
const struct db_operations *db_operations_known(VALUE native);

// Those of a Connection, and its driver's native object.
const struct db_operations *db_operations_for(VALUE connection, VALUE *native);

// Returns the result, or raises the server's error as Connection#query does.
VALUE db_connection_checked(VALUE connection, VALUE result, VALUE sql);

void db_connection_define(VALUE db);

#endif
