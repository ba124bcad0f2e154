// The functions of the SQLite library that the gem sqlite3 has loaded. Nothing here links with SQLite: the library
// hands its table of functions to loadable extensions ("Run-Time Loadable Extensions" on sqlite.org). Heddle is one.
// Numbers and signatures are those of struct sqlite3_api_routines in sqlite3ext.h, to which SQLite only ever appends.
#ifndef HEDDLE_DB_SQLITE_API_H
#define HEDDLE_DB_SQLITE_API_H

#include "heddle.h"

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
typedef struct sqlite3_value sqlite3_value;
typedef struct sqlite3_context sqlite3_context;
typedef struct sqlite3_backup sqlite3_backup;

typedef void (*sqlite_destructor)(void *);
typedef void (*sqlite_function)(sqlite3_context *, int, sqlite3_value **);

// From sqlite3.h: results, types of values, and flags.
enum { SQLITE_OK = 0, SQLITE_ERROR = 1, SQLITE_LOCKED = 6, SQLITE_NOMEM = 7, SQLITE_ROW = 100, SQLITE_DONE = 101 };
enum { SQLITE_INTEGER = 1, SQLITE_FLOAT = 2, SQLITE_TEXT = 3, SQLITE_BLOB = 4, SQLITE_NULL = 5 };
enum { SQLITE_UTF8 = 1 };
enum { SQLITE_STMTSTATUS_REPREPARE = 5 };
enum { SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION = 1005, SQLITE_DBCONFIG_DQS_DML = 1013, SQLITE_DBCONFIG_DQS_DDL = 1014 };
enum { SQLITE_LIMIT_LENGTH = 0 };
// Of the authorizer: its answer, and what a statement does. SQLITE_INSERT also of the update hook.
enum { SQLITE_IGNORE = 2 };
enum { SQLITE_CREATE_TABLE = 2, SQLITE_CREATE_VIEW = 8, SQLITE_CREATE_VTABLE = 29 };
enum { SQLITE_CREATE_TEMP_INDEX = 3, SQLITE_CREATE_TEMP_TABLE, SQLITE_CREATE_TEMP_TRIGGER, SQLITE_CREATE_TEMP_VIEW };
enum { SQLITE_DELETE = 9, SQLITE_INSERT = 18, SQLITE_PRAGMA, SQLITE_READ, SQLITE_SELECT, SQLITE_TRANSACTION };
enum { SQLITE_UPDATE = 23, SQLITE_ATTACH, SQLITE_DETACH, SQLITE_FUNCTION = 31, SQLITE_RECURSIVE = 33 };
enum { SQLITE_TXN_WRITE = 2 };
enum { SQLITE_FCNTL_FILE_POINTER = 7, SQLITE_FCNTL_JOURNAL_POINTER = 28 };

// The library copies the bytes before it returns.
#define SQLITE_TRANSIENT ((sqlite_destructor)-1)

// The number of each function in the table, what it returns, its name, and its parameters.
#define SQLITE_FUNCTIONS(_)                                                                                      \
    _(0, void *, aggregate_context, (sqlite3_context *, int))                                                    \
    _(3, int, bind_double, (sqlite3_stmt *, int, double))                                                        \
    _(5, int, bind_int64, (sqlite3_stmt *, int, int64_t))                                                        \
    _(7, int, bind_parameter_count, (sqlite3_stmt *))                                                            \
    _(13, int, busy_handler, (sqlite3 *, int (*)(void *, int), void *))                                          \
    _(14, int, busy_timeout, (sqlite3 *, int))                                                                   \
    _(15, int, changes, (sqlite3 *))                                                                             \
    _(19, const void *, column_blob, (sqlite3_stmt *, int))                                                      \
    _(20, int, column_bytes, (sqlite3_stmt *, int))                                                              \
    _(22, int, column_count, (sqlite3_stmt *))                                                                   \
    _(25, const char *, column_decltype, (sqlite3_stmt *, int))                                                  \
    _(27, double, column_double, (sqlite3_stmt *, int))                                                          \
    _(29, int64_t, column_int64, (sqlite3_stmt *, int))                                                          \
    _(30, const char *, column_name, (sqlite3_stmt *, int))                                                      \
    _(36, const unsigned char *, column_text, (sqlite3_stmt *, int))                                             \
    _(38, int, column_type, (sqlite3_stmt *, int))                                                               \
    _(40, void *, commit_hook, (sqlite3 *, int (*)(void *), void *))                                             \
    _(53, const char *, errmsg, (sqlite3 *))                                                                     \
    _(55, int, exec, (sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **))         \
    _(57, int, finalize, (sqlite3_stmt *))                                                                       \
    _(58, void, release, (void *))                                                                               \
    _(60, int, get_autocommit, (sqlite3 *))                                                                      \
    _(65, int64_t, last_insert_rowid, (sqlite3 *))                                                               \
    _(66, const char *, libversion, (void))                                                                      \
    _(67, int, libversion_number, (void))                                                                        \
    _(75, void, progress_handler, (sqlite3 *, int, int (*)(void *), void *))                                     \
    _(77, int, reset, (sqlite3_stmt *))                                                                          \
    _(79, void, result_double, (sqlite3_context *, double))                                                      \
    _(80, void, result_error, (sqlite3_context *, const char *, int))                                            \
    _(83, void, result_int64, (sqlite3_context *, int64_t))                                                      \
    _(84, void, result_null, (sqlite3_context *))                                                                \
    _(91, int, set_authorizer,                                                                                   \
      (sqlite3 *, int (*)(void *, int, const char *, const char *, const char *, const char *), void *))         \
    _(94, int, step, (sqlite3_stmt *))                                                                           \
    _(97, int, total_changes, (sqlite3 *))                                                                       \
    _(100, void *, update_hook, (sqlite3 *, void (*)(void *, int, const char *, const char *, int64_t), void *)) \
    _(101, void *, user_data, (sqlite3_context *))                                                               \
    _(102, const void *, value_blob, (sqlite3_value *))                                                          \
    _(103, int, value_bytes, (sqlite3_value *))                                                                  \
    _(105, double, value_double, (sqlite3_value *))                                                              \
    _(107, int64_t, value_int64, (sqlite3_value *))                                                              \
    _(109, const unsigned char *, value_text, (sqlite3_value *))                                                 \
    _(113, int, value_type, (sqlite3_value *))                                                                   \
    _(118, int, clear_bindings, (sqlite3_stmt *))                                                                \
    _(126, int, create_collation_v2,                                                                             \
      (sqlite3 *, const char *, int, void *, int (*)(void *, int, const void *, int, const void *),              \
       sqlite_destructor))                                                                                       \
    _(127, int, file_control, (sqlite3 *, const char *, int, void *))                                            \
    _(135, int, open_v2, (const char *, sqlite3 **, int, const char *))                                          \
    _(144, int, threadsafe, (void))                                                                              \
    _(150, int, extended_result_codes, (sqlite3 *, int))                                                         \
    _(151, int, limit, (sqlite3 *, int, int))                                                                    \
    _(152, sqlite3_stmt *, next_stmt, (sqlite3 *, sqlite3_stmt *))                                               \
    _(155, int, backup_finish, (sqlite3_backup *))                                                               \
    _(156, sqlite3_backup *, backup_init, (sqlite3 *, const char *, sqlite3 *, const char *))                    \
    _(157, int, backup_pagecount, (sqlite3_backup *))                                                            \
    _(158, int, backup_remaining, (sqlite3_backup *))                                                            \
    _(159, int, backup_step, (sqlite3_backup *, int))                                                            \
    _(162, int, create_function_v2,                                                                              \
      (sqlite3 *, const char *, int, int, void *, sqlite_function, sqlite_function, void (*)(sqlite3_context *), \
       sqlite_destructor))                                                                                       \
    _(163, int, db_config, (sqlite3 *, int, ...))                                                                \
    _(164, void *, db_mutex, (sqlite3 *))                                                                        \
    _(166, int, extended_errcode, (sqlite3 *))                                                                   \
    _(170, int, stmt_status, (sqlite3_stmt *, int, int))                                                         \
    _(179, int, close_v2, (sqlite3 *))                                                                           \
    _(180, const char *, db_filename, (sqlite3 *, const char *))                                                 \
    _(181, int, db_readonly, (sqlite3 *, const char *))                                                          \
    _(183, const char *, errstr, (int))                                                                          \
    _(184, int, stmt_busy, (sqlite3_stmt *))                                                                     \
    _(185, int, stmt_readonly, (sqlite3_stmt *))                                                                 \
    _(189, const char *, uri_parameter, (const char *, const char *))                                            \
    _(193, int, bind_blob64, (sqlite3_stmt *, int, const void *, uint64_t, sqlite_destructor))                   \
    _(194, int, bind_text64, (sqlite3_stmt *, int, const char *, uint64_t, sqlite_destructor, unsigned char))    \
    _(196, int, load_extension, (sqlite3 *, const char *, const char *, char **))                                \
    _(201, void, result_blob64, (sqlite3_context *, const void *, uint64_t, sqlite_destructor))                  \
    _(202, void, result_text64, (sqlite3_context *, const char *, uint64_t, sqlite_destructor, unsigned char))   \
    _(217, int, prepare_v3, (sqlite3 *, const char *, int, unsigned, sqlite3_stmt **, const char **))            \
    _(241, int, stmt_isexplain, (sqlite3_stmt *))                                                                \
    _(252, int, txn_state, (sqlite3 *, const char *))                                                            \
    _(256, int, error_offset, (sqlite3 *))

// The version with the last function of the list: 3.38.0.
enum { SQLITE_OLDEST = 3038000, SQLITE_WITH_DB_NAME = 3039000, SQLITE_WITH_CLIENT_DATA = 3044000 };

#define SQLITE_MEMBER(number, returned, name, parameters) returned(*name) parameters;
struct sqlite_api {
    SQLITE_FUNCTIONS(SQLITE_MEMBER)
    const char *(*db_name)(sqlite3 *, int);                                    // NULL before 3.39.0
    int (*set_clientdata)(sqlite3 *, const char *, void *, sqlite_destructor); // NULL before 3.44.0
};
#undef SQLITE_MEMBER

// All zero until Database.attach.
extern struct sqlite_api sqlite_api;

// The connection that has loaded Heddle's code last. To be compared only: it may be closed.
extern const sqlite3 *sqlite_loaded_by;

#endif
