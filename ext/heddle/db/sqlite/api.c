#include "db/sqlite/api.h"

#include "db/sqlite/database.h"

struct sqlite_api sqlite_api;
const sqlite3 *sqlite_loaded_by;

typedef void (*routine)(void);

// Called by SQLite: the entry point of a loadable extension in a file heddle.so. The library that calls last is the one
// that is used; there is only one, see lib/heddle/db/sqlite/library.rb.
RUBY_FUNC_EXPORTED int sqlite3_heddle_init(sqlite3 *db, char **message, const routine *routines);

int sqlite3_heddle_init(sqlite3 *db, char **message, const routine *routines)
{
    (void)message;
    int (*version)(void) = (int (*)(void))routines[67];
    if (version() < SQLITE_OLDEST) return SQLITE_ERROR;
#define SQLITE_TAKE(number, returned, name, parameters) sqlite_api.name = (returned(*) parameters)routines[number];
    SQLITE_FUNCTIONS(SQLITE_TAKE)
#undef SQLITE_TAKE
    sqlite_api.db_name = version() < SQLITE_WITH_DB_NAME ? NULL : (const char *(*)(sqlite3 *, int))routines[264];
    sqlite_api.set_clientdata = version() < SQLITE_WITH_CLIENT_DATA
                                    ? NULL
                                    : (int (*)(sqlite3 *, const char *, void *, sqlite_destructor))routines[269];
    sqlite_loaded_by = db;
    return SQLITE_OK;
}

/*
 * call-seq: Database.library -> String or nil
 *
 * The version of SQLite that is in use; nil before a library was attached.
 */
static VALUE library(VALUE klass)
{
    (void)klass;
    return sqlite_api.libversion ? rb_str_new_cstr(sqlite_api.libversion()) : Qnil;
}

/* call-seq: Database.threadsafe? -> true or false */
static VALUE threadsafe(VALUE klass)
{
    (void)klass;
    return sqlite_api.threadsafe() ? Qtrue : Qfalse;
}

void sqlite_api_define(VALUE database)
{
    rb_define_singleton_method(database, "library", library, 0);
    rb_define_singleton_method(database, "threadsafe?", threadsafe, 0);
}
