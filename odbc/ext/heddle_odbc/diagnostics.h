// What the driver manager and the driver say about a call that failed.
#ifndef HEDDLE_ODBC_DIAGNOSTICS_H
#define HEDDLE_ODBC_DIAGNOSTICS_H

#include "buffer.h"

#include <sql.h>
#include <sqlext.h>

struct odbc_diagnostics {
    char state[6];           // SQLSTATE of the first record; empty without an error
    SQLINTEGER code;         // the first record's native code
    int records;             // how many there are
    struct odbc_buffer text; // their messages in UTF-8, each followed by a NUL
};

void odbc_diagnostics_clear(struct odbc_diagnostics *);

// Collects the records of a handle, by the wide function: with narrow ones, driver managers lose messages that are not
// in the locale's encoding.
void odbc_diagnostics_collect(struct odbc_diagnostics *, SQLSMALLINT type, SQLHANDLE handle);

// Notes an error that this extension itself has found.
void odbc_diagnostics_set(struct odbc_diagnostics *, const char *state, const char *message);

#endif
