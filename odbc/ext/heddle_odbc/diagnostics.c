#include "diagnostics.h"
#include "text.h"

#include <sqlext.h>
#include <sqlucode.h>
#include <string.h>

// Further records than these say nothing new; units of a message, with its NUL.
enum { RECORDS = 16, UNITS = 2048 };

void odbc_diagnostics_clear(struct odbc_diagnostics *diagnostics)
{
    diagnostics->state[0] = 0;
    diagnostics->code = 0;
    diagnostics->records = 0;
    diagnostics->text.length = 0;
}

static void note(struct odbc_diagnostics *diagnostics, const char *state, SQLINTEGER code)
{
    if (diagnostics->records++ > 0) return;
    memcpy(diagnostics->state, state, 5);
    diagnostics->state[5] = 0;
    diagnostics->code = code;
}

static SQLSMALLINT odbc_within(SQLSMALLINT length)
{
    return length < 0 ? 0 : length >= UNITS ? UNITS - 1 : length;
}

static bool collect_record(struct odbc_diagnostics *diagnostics, SQLSMALLINT type, SQLHANDLE handle, SQLSMALLINT number)
{
    SQLWCHAR wide_state[6] = {0}, message[UNITS];
    char state[6] = {0};
    SQLINTEGER code = 0;
    SQLSMALLINT length = 0;
    if (!SQL_SUCCEEDED(SQLGetDiagRecW(type, handle, number, wide_state, &code, message, UNITS, &length))) return false;
    for (int i = 0; i < 5; i++)
        state[i] = (char)wide_state[i];
    note(diagnostics, state, code);
    return odbc_append_narrow(&diagnostics->text, message, (size_t)odbc_within(length)) &&
           odbc_buffer_append(&diagnostics->text, "", 1);
}

void odbc_diagnostics_collect(struct odbc_diagnostics *diagnostics, SQLSMALLINT type, SQLHANDLE handle)
{
    odbc_diagnostics_clear(diagnostics);
    for (SQLSMALLINT number = 1; number <= RECORDS; number++)
        if (!collect_record(diagnostics, type, handle, number)) break;
    if (diagnostics->records == 0) odbc_diagnostics_set(diagnostics, "HY000", "the driver failed without a reason");
}

void odbc_diagnostics_set(struct odbc_diagnostics *diagnostics, const char *state, const char *message)
{
    odbc_diagnostics_clear(diagnostics);
    note(diagnostics, state, 0);
    odbc_buffer_append(&diagnostics->text, message, strlen(message) + 1); // without memory the state alone is left
}
