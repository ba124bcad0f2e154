#include "parameters.h"

#include <stdlib.h>

static bool character(SQLSMALLINT type)
{
    switch (type) {
    case SQL_CHAR:
    case SQL_VARCHAR:
    case SQL_LONGVARCHAR:
    case SQL_WCHAR:
    case SQL_WVARCHAR:
    case SQL_WLONGVARCHAR: return true;
    default: return false;
    }
}

static bool binary(SQLSMALLINT type)
{
    return type == SQL_BINARY || type == SQL_VARBINARY || type == SQL_LONGVARBINARY;
}

// Whether the type that the driver describes tells more than the value does. Drivers that do not know describe every
// parameter as characters: a number bound so would come back as a text.
static bool tells_more(const struct odbc_value *value, const struct odbc_parameter_type *described)
{
    if (described->type == SQL_UNKNOWN_TYPE) return false;
    if (character(described->type)) return value->length == SQL_NULL_DATA;
    if (binary(described->type)) return value->c_type == SQL_C_BINARY || value->length == SQL_NULL_DATA;
    if (value->c_type == SQL_C_BINARY) return false;
    switch (value->c_type) {
    case SQL_C_SLONG:
    case SQL_C_SBIGINT: // a larger or more exact type keeps it, a small one raises at the server
    case SQL_C_BIT:
        return described->type != SQL_TYPE_DATE && described->type != SQL_TYPE_TIME &&
               described->type != SQL_TYPE_TIMESTAMP;
    case SQL_C_DOUBLE: // an integer would lose the fraction without a word
        return described->type == SQL_REAL || described->type == SQL_FLOAT || described->type == SQL_DOUBLE;
    case SQL_C_TYPE_DATE:
    case SQL_C_TYPE_TIMESTAMP: return described->type == SQL_TYPE_TIMESTAMP;
    default: return true;
    }
}

SQLRETURN odbc_parameters_bind(struct odbc_parameters *parameters, SQLHSTMT handle,
                               const struct odbc_parameter_type *types)
{
    for (size_t i = 0; i < parameters->count; i++) {
        struct odbc_value *value = &parameters->values[i];
        SQLSMALLINT type = value->type, digits = value->digits;
        SQLULEN size = value->size;
        if (types && tells_more(value, &types[i])) {
            type = types[i].type;
            // A value's own size is the larger one where the description is an upper bound that it breaks: the server
            // then refuses it, instead of the driver cutting it off.
            if (types[i].size > size) size = types[i].size;
            digits = types[i].digits > digits ? types[i].digits : digits;
        }
        // A driver takes a value without an address for NULL, even one without bytes.
        static char nothing[8];
        SQLPOINTER at = parameters->bytes.at ? parameters->bytes.at + value->offset : nothing;
        SQLRETURN outcome = SQLBindParameter(handle, (SQLUSMALLINT)(i + 1), SQL_PARAM_INPUT, value->c_type, type, size,
                                             digits, at, value->length > 0 ? value->length : 0, &value->length);
        if (!SQL_SUCCEEDED(outcome)) return outcome;
    }
    return SQL_SUCCESS;
}

void odbc_parameters_shrink(struct odbc_parameters *parameters)
{
    enum { KEPT = 64 << 10 };
    if (parameters->bytes.capacity > KEPT) odbc_buffer_free(&parameters->bytes);
    if (parameters->capacity > KEPT / sizeof *parameters->values) {
        free(parameters->values);
        parameters->values = NULL;
        parameters->capacity = 0; // `count` stays: see client_finish
    }
}

void odbc_parameters_free(struct odbc_parameters *parameters)
{
    free(parameters->values);
    odbc_buffer_free(&parameters->bytes);
    *parameters = (struct odbc_parameters){0};
}
