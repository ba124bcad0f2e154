// A connection to a database file of SQLite, which works in this process. This header is shared by the files of this
// layer: api.c (the library's functions), core.c (connections and statements as SQLite has them), database.c (open,
// close, giving way), fork.c (children of fork), kinds.c (what a statement does), statements.c (prepared statements),
// columns.c (their columns), parameters.c and values.c (values in and out), results.c (whole results), functions.c
// (functions in Ruby), backup.c, handlers.c (the gem sqlite3's own connections). init.c knows all of them; no file
// calls one that calls it. What to run, and when, is decided in Ruby (lib/heddle/db/sqlite).
//
// A statement runs on the stack of the fiber that asked for it. SQLite calls back every few instructions (its progress
// handler), when it finds the database locked (its busy handler), and for functions in Ruby. There other fibers and
// threads may run, and they may use this very connection, close it, fork, or collect garbage. So:
//
// - `busy` is set while SQLite's frames are on a stack: nobody else may call SQLite with this connection.
// - No exception passes through SQLite's frames. A callback keeps it (`jump`) and makes SQLite stop; `sqlite_settle`
//   raises it once SQLite has returned.
// - What must be closed meanwhile is closed when `busy` ends.
// - Callbacks call Ruby only while `stepping`. A reset or a close would call them, too: in the GC, or where nothing
//   raises what they keep.
// - In a child of fork, a callback never returns into SQLite: it jumps over SQLite's frames.
#ifndef HEDDLE_DB_SQLITE_DATABASE_H
#define HEDDLE_DB_SQLITE_DATABASE_H

#include "heddle.h"

#include "os/deadline.h"
#include "db/sqlite/api.h"

// The connection itself. The database and each of its statements refer to it, and the GC frees them in any order.
struct sqlite_core {
    struct sqlite_core *older, *newer; // of those that have a database
    sqlite3 *db;                       // NULL once closed
    struct sqlite_statement *statements;
    uint32_t references;
    unsigned born; // fork_count() when opened: a child of fork must not touch its parent's connection
    bool busy;     // a fiber is inside of SQLite
    bool dooms;    // a statement was closed meanwhile
    bool closing;  // close it as soon as that fiber has left
};

// Instructions between two calls of the progress handler: some 10 µs. As many as the gem sqlite3 has for its own.
enum { SQLITE_INSTRUCTIONS = 1000 };

struct loop;

// What a statement runs before others have a turn.
struct sqlite_slice {
    deadline_t began;  // 0 before its clock runs
    uint64_t switches; // of the loop, at that time
};

struct sqlite_database {
    struct sqlite_core *core;          // NULL before #open
    VALUE waiter;                      // waits for locks: its call(count) tells whether to try again
    VALUE waiting;                     // Hash of the Waiters that wait for this database; nil
    VALUE error_map;                   // makes errors: its error(code, message, offset)
    struct sqlite_function *functions; // what SQL may call
    struct sqlite_group *groups;       // that are being aggregated
    int64_t span;                      // nanoseconds that an operation may take
    struct sqlite_slice slice;
    int jump;                           // the state of an exception that was kept from SQLite; it is still in $!
    struct sqlite_statement *preparing; // whose kind and target SQLite tells
    const char *target;                 // the table whose first new row is looked for; NULL
    int64_t first_id;                   // … the number of that row
    bool inserted;                      // … whether there was one
    bool local;                         // times without a zone are local
    bool stored;                        // values come as SQLite stores them, whatever their columns' declared types
    bool stepping;                      // SQLite's callbacks may call Ruby
    bool touched;                       // the connection's next user would notice what was prepared or run
    bool attended;                      // the driver has something to do before or after a statement: see attended=
    bool misordered; // a collation failed in this call: what the statement has written is out of order
};

struct sqlite_function {
    struct sqlite_function *next, *previous; // of the connection
    struct sqlite_database *database;
    VALUE callable; // must not move: SQLite has no way to tell of another address
};

struct sqlite_group {
    struct sqlite_group *next, *previous; // of the connection
    struct sqlite_database *database;
    VALUE object; // must not move
};

// How a column's values are read, from its declared type.
enum sqlite_kind {
    SQLITE_AS_STORED,
    SQLITE_AS_BOOLEAN,
    SQLITE_AS_DATE,
    SQLITE_AS_DATETIME,
    SQLITE_AS_TIME,
    SQLITE_AS_DECIMAL
};

// Driver#kind is :plain, :session, :other or :commit. Of several actions in a statement the greatest counts.
enum sqlite_statement_kind { SQLITE_PLAIN, SQLITE_HAS_PRAGMA, SQLITE_OTHER, SQLITE_COMMIT };

struct sqlite_statement {
    struct sqlite_statement *next, *previous; // of the same core
    struct sqlite_core *core;
    sqlite3_stmt *at; // NULL once closed, and for a text without a statement
    VALUE self;       // the object of this record, for write barriers
    VALUE database;
    VALUE description; // Columns; nil for a statement without rows
    uint8_t *kinds;    // enum sqlite_kind of each column
    int columns, parameters;
    int prepared_anew; // how often SQLite has prepared it again by itself
    bool reads;        // it changes nothing
    enum sqlite_statement_kind kind;
    bool changes_session; // the connection's next user would notice that it has run
    bool sets_timeout;    // PRAGMA busy_timeout = …
    char *target;         // the table that an INSERT names, by malloc; NULL for any other statement
    bool open;            // between open_cursor and its end
    bool closed;
    bool doomed; // closed while SQLite was busy
    bool orphan; // … by the GC: the object is gone
    size_t tail; // offset of the text behind the statement, or 0
};

extern VALUE sqlite_cDatabase, sqlite_eBusy;
extern const rb_data_type_t sqlite_database_type;

static inline struct sqlite_database *sqlite_database_of(VALUE self)
{
    return rb_check_typeddata(self, &sqlite_database_type);
}

// Calls the body with SQLite reserved for the caller, within the connection's time limit, and releases it however the
// body ends. Raises IOError when the connection is closed or belongs to the parent process, Heddle::DB::Busy when
// another fiber is inside.
struct sqlite_call {
    VALUE self;
    struct sqlite_database *database;
    VALUE (*body)(struct sqlite_call *);
    VALUE arguments[3];
    struct sqlite_statement *statement; // is reset at the end, unless it is a cursor that stays open
    bool keeps_open;
    bool lets_others_in; // that wait for the database, at the end; otherwise the driver does so
};
VALUE sqlite_call(struct sqlite_call *call);

// Runs the statement up to its next row. Raises what a callback has kept from SQLite, if anything.
int sqlite_step(struct sqlite_database *database, struct sqlite_statement *statement);
void sqlite_settle(struct sqlite_database *database); // the latter alone

// Keeps what rb_protect caught. Returns whether it caught anything; then SQLite must be made to stop. Raises in a child
// of fork.
bool sqlite_keep(struct sqlite_database *database, int state);

// Puts our busy handler back: a pragma, once it is prepared, has put one of SQLite's own there, which sleeps in the
// system, and an extension may do so.
void sqlite_keep_waiting(struct sqlite_database *database);

// The connection's last error, as a value.
VALUE sqlite_error_value(struct sqlite_database *database, int code);

// Whether the slice is over, for a progress handler; the next one begins with the next call. It also begins once other
// fibers have run, however they came to it. `loop`: on which the statement runs, or NULL.
bool sqlite_slice_over(struct sqlite_slice *slice, const struct loop *loop, bool in_thread);

// Whether the driver would do nothing but run a statement. In a transaction it waits for nobody, and looks at the state
// only behind a refusal.
bool sqlite_at_ease(const struct sqlite_database *database);

// For struct db_operations.
bool sqlite_in_transaction(VALUE self);
bool sqlite_is_closed(VALUE self);
bool sqlite_is_forked(VALUE self);

// core.c
void sqlite_core_release(struct sqlite_core *core);
bool sqlite_core_alive(const struct sqlite_core *core); // whether this process may touch it
void sqlite_statement_finalize(struct sqlite_statement *statement);
void sqlite_finalize_doomed(struct sqlite_core *core);
void sqlite_statement_free(struct sqlite_statement *statement); // the record, once SQLite has finalized it

// fork.c: which cores have a database.
void sqlite_core_note(struct sqlite_core *core);
void sqlite_core_forget(struct sqlite_core *core);
// In a child of fork: closes the files of its parent's connections.
void sqlite_discard_parents_files(void);
// … of this one.
void sqlite_leave_files(struct sqlite_core *core);

// kinds.c: the authorizer, and what it has noted of a statement that is prepared now.
int sqlite_authorize(void *database, int action, const char *first, const char *second, const char *base,
                     const char *within);
void sqlite_note_kind(struct sqlite_database *database, struct sqlite_statement *statement);

// statements.c
struct sqlite_statement *sqlite_statement_of(VALUE prepared);
// Whether the String is most likely one statement that reads or writes rows. (Database.plain?)
bool sqlite_is_plain(VALUE self, VALUE sql);
// Whether the statement is open, and one of that database.
bool sqlite_owns(VALUE self, VALUE prepared);
// Prepares the text from `offset` on. Returns a statement, or an error. To be called within sqlite_call.
VALUE sqlite_prepare(VALUE self, VALUE sql, size_t offset);
VALUE sqlite_sql(VALUE sql); // as UTF-8; raises
// Looks at the columns again if SQLite has prepared the statement anew, because the table has changed.
void sqlite_statement_refresh(struct sqlite_statement *statement);

// columns.c: the Columns of a statement, which need not live as long.
VALUE sqlite_columns_new(sqlite3_stmt *at, int count);

// parameters.c: raises before anything has run.
void sqlite_bind(struct sqlite_database *database, struct sqlite_statement *statement, VALUE arguments);
// A value as SQLite stores it: nil, Integer, Float or String. Raises TypeError, ArgumentError.
VALUE sqlite_storable(struct sqlite_database *database, VALUE value);
int64_t sqlite_integer(VALUE value);

// values.c
VALUE sqlite_row(struct sqlite_database *database, struct sqlite_statement *statement);
enum sqlite_kind sqlite_kind_of(const char *declared);
VALUE sqlite_column_text(const void *bytes, int length);

VALUE sqlite_database_allocate(VALUE klass);
void sqlite_database_define(void);
void sqlite_api_define(VALUE database);
void sqlite_statements_define(void);
void sqlite_columns_define(void);
void sqlite_parameters_define(void);
void sqlite_parameters_load_classes(void);
void sqlite_values_define(void);
void sqlite_values_load_classes(void);
void sqlite_results_define(void);
void sqlite_results_load_classes(void);
void sqlite_functions_define(void);
void sqlite_backup_define(void);
void sqlite_handlers_define(VALUE sqlite);

#endif
