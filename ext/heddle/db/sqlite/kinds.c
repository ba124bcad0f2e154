// What a statement does to the transaction and to the connection, as SQLite says while it prepares the statement.
#include "db/sqlite/database.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static enum sqlite_statement_kind kind_of_action(int action)
{
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_FUNCTION:
    case SQLITE_RECURSIVE:
    case SQLITE_INSERT:
    case SQLITE_UPDATE:
    case SQLITE_DELETE: return SQLITE_PLAIN;
    case SQLITE_PRAGMA: return SQLITE_HAS_PRAGMA;
    case SQLITE_TRANSACTION: return SQLITE_COMMIT;
    default: return SQLITE_OTHER;
    }
}

// These pragmas have an argument, and set nothing.
static bool only_asks(const char *pragma)
{
    static const char *const names[] = {"table_info",      "table_xinfo", "table_list",       "index_list",
                                        "index_info",      "index_xinfo", "foreign_key_list", "foreign_key_check",
                                        "integrity_check", "quick_check", "wal_checkpoint",   "optimize"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcasecmp(pragma, names[i]) == 0) return true;
    }
    return false;
}

static bool changes_session(int action, const char *pragma, const char *value, const char *base)
{
    switch (action) {
    case SQLITE_PRAGMA: return value && !only_asks(pragma);
    case SQLITE_ATTACH:
    case SQLITE_DETACH:
    case SQLITE_CREATE_TEMP_INDEX:
    case SQLITE_CREATE_TEMP_TABLE:
    case SQLITE_CREATE_TEMP_TRIGGER:
    case SQLITE_CREATE_TEMP_VIEW: return true;
    case SQLITE_CREATE_TABLE: // temp.name, without the word
    case SQLITE_CREATE_VIEW:
    case SQLITE_CREATE_VTABLE: return base && strcmp(base, "temp") == 0;
    default: return false;
    }
}

// The authorizer, which SQLite calls for each action of a statement: it allows everything. But SQLite carries most
// pragmas out while it prepares them, so they are ignored in a statement that is prepared only to be looked at. An
// action of a trigger or view comes with its name (`within`). While SQLite prepares our statement, modules of virtual
// tables may prepare statements of their own: these come before the table of ours.
int sqlite_authorize(void *pointer, int action, const char *first, const char *second, const char *base,
                     const char *within)
{
    const struct sqlite_database *database = pointer;
    struct sqlite_statement *statement = database->preparing;
    if (!statement) return SQLITE_OK;
    enum sqlite_statement_kind kind = kind_of_action(action);
    if (kind > statement->kind) statement->kind = kind;
    if (changes_session(action, first, second, base)) statement->changes_session = true;
    if (action == SQLITE_INSERT && !within) {
        free(statement->target);
        statement->target = strdup(first);
    }
    if (action != SQLITE_PRAGMA) return SQLITE_OK;
    if (second && strcasecmp(first, "busy_timeout") == 0) statement->sets_timeout = true;
    return database->stepping ? SQLITE_OK : SQLITE_IGNORE;
}

// The statement behind EXPLAIN is not run, unless it is a pragma.
void sqlite_note_kind(struct sqlite_database *database, struct sqlite_statement *statement)
{
    if (sqlite_api.stmt_isexplain(statement->at)) {
        statement->sets_timeout = false;
        if (statement->kind != SQLITE_HAS_PRAGMA) {
            statement->kind = SQLITE_PLAIN;
            statement->changes_session = false;
        }
    }
    if (statement->changes_session) database->touched = true;
}
