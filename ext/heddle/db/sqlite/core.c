// Connections of SQLite and their statements, which end in any order: also in the GC, and in the middle of a call.
#include "db/sqlite/database.h"

#include "os/fork.h"

#include <stdlib.h>

void sqlite_core_release(struct sqlite_core *core)
{
    if (core && !--core->references) xfree(core);
}

bool sqlite_core_alive(const struct sqlite_core *core)
{
    return core->db && core->born == fork_count();
}

static void unlink_statement(struct sqlite_statement *statement)
{
    struct sqlite_core *core = statement->core;
    if (statement->previous) {
        statement->previous->next = statement->next;
    } else {
        core->statements = statement->next;
    }
    if (statement->next) statement->next->previous = statement->previous;
    statement->next = statement->previous = NULL;
}

void sqlite_statement_free(struct sqlite_statement *statement)
{
    sqlite_core_release(statement->core);
    xfree(statement->kinds);
    free(statement->target);
    xfree(statement);
}

// While SQLite is busy the statement is only marked: a finalize in the middle of another statement is not allowed.
void sqlite_statement_finalize(struct sqlite_statement *statement)
{
    if (!statement->at) return;
    if (statement->core->busy) {
        statement->doomed = statement->core->dooms = true;
        return;
    }
    unlink_statement(statement);
    sqlite_api.finalize(statement->at);
    statement->at = NULL;
    statement->closed = true;
    if (statement->orphan) sqlite_statement_free(statement);
}

// Behind each call, so not by a look at all statements, of which a program may keep thousands.
void sqlite_finalize_doomed(struct sqlite_core *core)
{
    if (!core->dooms) return;
    core->dooms = false;
    for (struct sqlite_statement *statement = core->statements, *next; statement; statement = next) {
        next = statement->next;
        if (statement->doomed) sqlite_statement_finalize(statement);
    }
}
