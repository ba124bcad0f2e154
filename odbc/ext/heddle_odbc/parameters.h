// The values of a statement's parameters, as ODBC takes them.
#ifndef HEDDLE_ODBC_PARAMETERS_H
#define HEDDLE_ODBC_PARAMETERS_H

#include "buffer.h"

#include <sql.h>
#include <sqlext.h>

struct odbc_parameter_type {
    SQLSMALLINT type; // SQL_UNKNOWN_TYPE: the driver does not say
    SQLSMALLINT digits, nullable;
    SQLULEN size;
};

struct odbc_value {
    SQLSMALLINT c_type, type; // the form that it has here; the SQL type of such a value
    SQLSMALLINT digits;
    SQLULEN size;
    SQLLEN length; // bytes, or SQL_NULL_DATA
    size_t offset; // into the bytes
};

struct odbc_parameters {
    struct odbc_value *values;
    size_t count, capacity;
    struct odbc_buffer bytes;
};

// On the session's thread: binds all of them. `types`: what the driver has described, or NULL.
SQLRETURN odbc_parameters_bind(struct odbc_parameters *, SQLHSTMT, const struct odbc_parameter_type *types);

// Frees memory that only unusually large values need; the values are gone then.
void odbc_parameters_shrink(struct odbc_parameters *);

void odbc_parameters_free(struct odbc_parameters *);

#endif
