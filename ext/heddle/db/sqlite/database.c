// Open and close, and what SQLite calls while a statement runs.
#include "db/sqlite/database.h"

#include "loop/loop.h"
#include "os/budget.h"
#include "os/fork.h"
#include "os/main_ractor.h"
#include "references.h"
#include "scope/scope.h"
#include "task/current.h"

#include <stdlib.h>
#include <string.h>

// Nanoseconds that a statement may run before other tasks have a turn. Beside plain threads a turn is expensive: a
// CPU-bound thread keeps the GVL for its whole quantum.
static const int64_t SLICE = 1000000;
static const int64_t SLICE_IN_THREAD = 10000000;

VALUE sqlite_cDatabase;
VALUE sqlite_eBusy;
static ID id_call, id_error, id_let_others_in;

// ---- the object

// Also called by the GC: calls no Ruby, see `stepping`.
static void close_core(struct sqlite_core *core)
{
    if (!sqlite_core_alive(core)) return;
    sqlite_core_forget(core);
    while (core->statements)
        sqlite_statement_finalize(core->statements);
    sqlite_api.progress_handler(core->db, 0, NULL, NULL);
    sqlite_api.busy_handler(core->db, NULL, NULL);
    sqlite_api.commit_hook(core->db, NULL, NULL);
    sqlite_api.set_authorizer(core->db, NULL, NULL);
    sqlite_api.update_hook(core->db, NULL, NULL);
    sqlite_api.close_v2(core->db);
    core->db = NULL;
}

static void sqlite_database_references(void *pointer, reference_function *each)
{
    struct sqlite_database *database = pointer;
    each(&database->waiter);
    each(&database->waiting);
    each(&database->error_map);
}

static void sqlite_database_mark(void *pointer)
{
    const struct sqlite_database *database = pointer;
    sqlite_database_references(pointer, reference_mark);
    // SQLite has their addresses, and no way to tell it of others.
    for (const struct sqlite_function *function = database->functions; function; function = function->next)
        rb_gc_mark(function->callable);
    for (const struct sqlite_group *group = database->groups; group; group = group->next)
        rb_gc_mark(group->object);
}

static void sqlite_database_compact(void *pointer)
{
    sqlite_database_references(pointer, reference_move);
}

// A fiber that was abandoned inside of SQLite keeps the connection open: its frames are gone, and nothing can say in
// what state they left SQLite.
static void sqlite_database_release(void *pointer)
{
    if (main_ractor_releases(pointer, sqlite_database_release)) return;
    struct sqlite_database *database = pointer;
    struct sqlite_core *core = database->core;
    if (core && core->born != fork_count()) sqlite_leave_files(core);
    if (core && !(core->busy && core->db)) {
        close_core(core);
        sqlite_core_release(core);
    }
    xfree(database);
}

static size_t sqlite_database_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct sqlite_database) + sizeof(struct sqlite_core);
}

const rb_data_type_t sqlite_database_type = {
    .wrap_struct_name = "Heddle::DB::SQLite::Database",
    .function = {.dmark = sqlite_database_mark,
                 .dfree = sqlite_database_release,
                 .dsize = sqlite_database_memsize,
                 .dcompact = sqlite_database_compact},
    // No write barriers: SQLite's callbacks store what they aggregate, and connections are few.
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

VALUE sqlite_database_allocate(VALUE klass)
{
    struct sqlite_database *database;
    VALUE self = TypedData_Make_Struct(klass, struct sqlite_database, &sqlite_database_type, database);
    database->waiter = database->waiting = database->error_map = Qnil;
    database->span = DEADLINE_NEVER;
    return self;
}

// ---- what SQLite calls

static VALUE give_way(VALUE unused)
{
    bool in_thread = NIL_P(context_of_fiber().scheduler);
    budget_give_way_to_all();
    if (in_thread) rb_thread_schedule();
    return unused;
}

bool sqlite_slice_over(struct sqlite_slice *slice, const struct loop *loop, bool in_thread)
{
    deadline_t now = deadline_now();
    uint64_t switches = loop ? loop->statistics.switches : 0;
    if (!slice->began || slice->switches != switches) *slice = (struct sqlite_slice){now, switches};
    if (now - slice->began < (in_thread ? SLICE_IN_THREAD : SLICE)) return false;
    slice->began = 0;
    return true;
}

// The progress handler: 0 to go on.
static int progress(void *pointer)
{
    struct sqlite_database *database = pointer;
    if (!database->stepping) return 0;
    if (database->jump || database->core->closing) return 1;
    struct context context = context_of_fiber();
    if (!sqlite_slice_over(&database->slice, context.loop, NIL_P(context.scheduler))) return 0;
    int state = 0;
    rb_protect(give_way, Qnil, &state);
    return sqlite_keep(database, state) || database->core->closing;
}

struct waiting {
    VALUE waiter;
    int count;
};

static VALUE wait_for_lock(VALUE argument)
{
    const struct waiting *waiting = (const struct waiting *)argument;
    return rb_funcall(waiting->waiter, id_call, 1, INT2FIX(waiting->count));
}

// The busy handler: 0 to give up.
static int locked(void *pointer, int count)
{
    struct sqlite_database *database = pointer;
    if (!database->stepping || database->jump || database->core->closing || NIL_P(database->waiter)) return 0;
    struct waiting waiting = {database->waiter, count};
    int state = 0;
    VALUE again = rb_protect(wait_for_lock, (VALUE)&waiting, &state);
    database->slice.began = 0;
    return !sqlite_keep(database, state) && RTEST(again) && !database->core->closing;
}

void sqlite_keep_waiting(struct sqlite_database *database)
{
    sqlite_api.busy_handler(database->core->db, locked, database);
}

// The update hook, which SQLite calls for each row of a table with row numbers.
static void changes(void *pointer, int what, const char *base, const char *table, int64_t id)
{
    struct sqlite_database *database = pointer;
    (void)base;
    if (what != SQLITE_INSERT || !database->target || database->inserted || strcmp(table, database->target) != 0)
        return;
    database->inserted = true;
    database->first_id = id;
}

// The commit hook: nothing that is out of order is committed.
static int refuse_commit(void *pointer)
{
    return ((struct sqlite_database *)pointer)->misordered;
}

RBIMPL_ATTR_NORETURN()
static void raise_forked(void)
{
    rb_raise(rb_eIOError, "this connection belongs to the parent process: open another one after the fork");
}

bool sqlite_keep(struct sqlite_database *database, int state)
{
    if (database->core->born != fork_count()) {
        if (state) rb_jump_tag(state);
        raise_forked();
    }
    if (state) database->jump = state;
    return state != 0;
}

// A comparison cannot make a statement fail, so it may have succeeded, and in a transaction there is no commit yet.
static void undo_misorder(struct sqlite_database *database, struct sqlite_statement *statement)
{
    if (!database->misordered || statement->reads || sqlite_api.get_autocommit(database->core->db)) return;
    sqlite_api.reset(statement->at);
    sqlite_api.exec(database->core->db, "ROLLBACK", NULL, NULL, NULL);
}

int sqlite_step(struct sqlite_database *database, struct sqlite_statement *statement)
{
    if (database->core->born != fork_count()) raise_forked(); // by the Ruby code that a value needs
    database->stepping = true;
    int code = sqlite_api.step(statement->at);
    database->stepping = false;
    undo_misorder(database, statement);
    sqlite_settle(database);
    return code;
}

void sqlite_settle(struct sqlite_database *database)
{
    int state = database->jump;
    database->jump = 0;
    if (state) rb_jump_tag(state);
    if (database->core->closing) rb_raise(rb_eIOError, "the connection was closed meanwhile");
}

// ---- calls

static VALUE sqlite_call_body(VALUE argument)
{
    struct sqlite_call *call = (struct sqlite_call *)argument;
    return call->body(call);
}

static VALUE call_in_time(VALUE argument)
{
    struct sqlite_call *call = (struct sqlite_call *)argument;
    int64_t span = call->database->span;
    if (span == DEADLINE_NEVER) return call->body(call);
    struct scope *scope = scope_new(SCOPE_DEADLINE, span);
    VALUE guard = scope->self;
    scope_open(scope, scope_chain_current(), deadline_after(deadline_now(), span));
    VALUE result = scope_call(scope, sqlite_call_body, argument);
    RB_GC_GUARD(guard);
    return result;
}

static bool somebody_waits(const struct sqlite_database *database)
{
    return !NIL_P(database->waiting) && RHASH_SIZE(database->waiting) > 0;
}

static bool database_in_transaction(const struct sqlite_core *core)
{
    return core && sqlite_core_alive(core) && !sqlite_api.get_autocommit(core->db);
}

bool sqlite_in_transaction(VALUE self)
{
    return database_in_transaction(sqlite_database_of(self)->core);
}

bool sqlite_is_closed(VALUE self)
{
    const struct sqlite_core *core = sqlite_database_of(self)->core;
    return !core || !sqlite_core_alive(core) || core->closing;
}

bool sqlite_is_forked(VALUE self)
{
    const struct sqlite_core *core = sqlite_database_of(self)->core;
    return core && core->born != fork_count();
}

bool sqlite_at_ease(const struct sqlite_database *database)
{
    return database_in_transaction(database->core) || (!database->attended && !somebody_waits(database));
}

static VALUE call_end(VALUE argument)
{
    struct sqlite_call *call = (struct sqlite_call *)argument;
    struct sqlite_core *core = call->database->core;
    struct sqlite_statement *statement = call->statement;
    if (core->born != fork_count()) { // the block forked, and this is the child
        core->busy = false;
        return Qnil;
    }
    if (statement && statement->at && !call->keeps_open) {
        sqlite_api.reset(statement->at);
        if (statement->parameters) sqlite_api.clear_bindings(statement->at);
        statement->open = false;
    }
    core->busy = false;
    call->database->target = NULL;
    sqlite_finalize_doomed(core);
    if (core->closing) close_core(core);
    if (call->lets_others_in && somebody_waits(call->database))
        rb_funcall(call->database->waiter, id_let_others_in, 1, database_in_transaction(core) ? Qtrue : Qfalse);
    return Qnil;
}

VALUE sqlite_call(struct sqlite_call *call)
{
    call->database = sqlite_database_of(call->self);
    struct sqlite_core *core = call->database->core;
    if (core && core->born != fork_count()) raise_forked();
    if (!core || !core->db || core->closing) rb_raise(rb_eIOError, "closed database");
    if (core->busy)
        rb_raise(sqlite_eBusy,
                 "a statement is running on this connection: give each fiber and thread a connection of its own "
                 "(Heddle::DB::Pool)");
    core->busy = true;
    call->database->jump = 0;
    call->database->misordered = false;
    call->database->slice.began = 0;
    VALUE result = rb_ensure(call_in_time, (VALUE)call, call_end, (VALUE)call);
    RB_GC_GUARD(call->self);
    return result;
}

VALUE sqlite_error_value(struct sqlite_database *database, int code)
{
    sqlite3 *db = database->core->db;
    int extended = sqlite_api.extended_errcode(db);
    if ((extended & 0xff) != (code & 0xff)) extended = code; // a misuse sets none
    VALUE message = rb_utf8_str_new_cstr((extended == sqlite_api.extended_errcode(db)) ? sqlite_api.errmsg(db)
                                                                                       : sqlite_api.errstr(code));
    int offset = sqlite_api.error_offset(db);
    return rb_funcall(database->error_map, id_error, 3, INT2NUM(extended), message, INT2NUM(offset));
}

// ---- methods

/*
 * call-seq: database.open(path, flags) -> nil or error
 *
 * Opens the database. +flags+ are those of sqlite3_open_v2.
 */
static VALUE database_open(VALUE self, VALUE path, VALUE flags)
{
    struct sqlite_database *database = sqlite_database_of(self);
    if (database->core) rb_raise(rb_eRuntimeError, "the database is open already");
    const char *name = StringValueCStr(path);
    int with = NUM2INT(flags);
    sqlite_discard_parents_files();
    struct sqlite_core *core = ZALLOC(struct sqlite_core);
    core->references = 1;
    core->born = fork_count();
    database->core = core;
    int code = sqlite_api.open_v2(name, &core->db, with, NULL);
    if (!core->db) rb_memerror();
    sqlite_core_note(core);
    if (code != SQLITE_OK) {
        VALUE error = sqlite_error_value(database, code);
        close_core(core);
        return error;
    }
    sqlite_api.extended_result_codes(core->db, 1);
    sqlite_api.db_config(core->db, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
    sqlite_api.db_config(core->db, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
    sqlite_api.progress_handler(core->db, SQLITE_INSTRUCTIONS, progress, database);
    sqlite_api.busy_handler(core->db, locked, database);
    sqlite_api.commit_hook(core->db, refuse_commit, database);
    sqlite_api.set_authorizer(core->db, sqlite_authorize, database);
    sqlite_api.update_hook(core->db, changes, database);
    RB_GC_GUARD(path);
    return Qnil;
}

/*
 * call-seq: database.wait_for_locks_by(waiter, waiting) -> waiter
 *
 * When the database is locked, SQLite asks +waiter.call(count)+ whether to try again. A pragma for the time of such
 * waits sets +waiter.seconds+. A statement that #run has run ends with +waiter.let_others_in(database_in_transaction)+,
 * unless the Hash +waiting+ is empty.
 */
static VALUE database_wait_by(VALUE self, VALUE waiter, VALUE waiting)
{
    struct sqlite_database *database = sqlite_database_of(self);
    Check_Type(waiting, T_HASH);
    database->waiter = waiter;
    database->waiting = waiting;
    return waiter;
}

/*
 * call-seq: database.attended = true or false
 *
 * Whether the driver has something to do before or after a statement outside of a transaction, beside letting others
 * in. Then such a statement does not run without the driver.
 */
static VALUE database_set_attended(VALUE self, VALUE attended)
{
    sqlite_database_of(self)->attended = RTEST(attended);
    return attended;
}

/* call-seq: database.touched? -> true or false: whether the connection's next user would notice what was prepared */
static VALUE database_touched_p(VALUE self)
{
    return sqlite_database_of(self)->touched ? Qtrue : Qfalse;
}

/* call-seq: database.touched = true or false */
static VALUE database_set_touched(VALUE self, VALUE touched)
{
    sqlite_database_of(self)->touched = RTEST(touched);
    return touched;
}

/* call-seq: database.error_map = object */
static VALUE database_set_error_map(VALUE self, VALUE error_map)
{
    return sqlite_database_of(self)->error_map = error_map;
}

/* call-seq: database.timeout = seconds */
static VALUE database_set_timeout(VALUE self, VALUE seconds)
{
    sqlite_database_of(self)->span = deadline_span(seconds);
    return seconds;
}

/* call-seq: database.stored_values = true or false. Whether values come as SQLite stores them: for libraries that read
 * declared types themselves. */
static VALUE database_set_stored_values(VALUE self, VALUE stored)
{
    sqlite_database_of(self)->stored = RTEST(stored);
    return stored;
}

/* call-seq: database.local = true or false */
static VALUE database_set_local(VALUE self, VALUE local)
{
    sqlite_database_of(self)->local = RTEST(local);
    return local;
}

/* call-seq: database.in_transaction? -> true or false */
static VALUE database_in_transaction_p(VALUE self)
{
    return sqlite_in_transaction(self) ? Qtrue : Qfalse;
}

/* call-seq: database.busy? -> true or false */
static VALUE database_busy_p(VALUE self)
{
    const struct sqlite_core *core = sqlite_database_of(self)->core;
    return core && core->busy ? Qtrue : Qfalse;
}

/* call-seq: database.reading? -> true or false: whether the rows of a statement are still being fetched */
static VALUE database_reading_p(VALUE self)
{
    const struct sqlite_core *core = sqlite_database_of(self)->core;
    for (const struct sqlite_statement *at = core ? core->statements : NULL; at; at = at->next) {
        if (at->open) return Qtrue;
    }
    return Qfalse;
}

/* call-seq: database.closed? -> true or false */
static VALUE database_closed_p(VALUE self)
{
    return sqlite_is_closed(self) ? Qtrue : Qfalse;
}

/* call-seq: database.forked? -> true or false */
static VALUE database_forked_p(VALUE self)
{
    return sqlite_is_forked(self) ? Qtrue : Qfalse;
}

/* call-seq: database.writing? -> true or false: whether it has the lock for writing */
static VALUE database_writing_p(VALUE self)
{
    const struct sqlite_core *core = sqlite_database_of(self)->core;
    return core && sqlite_core_alive(core) && sqlite_api.txn_state(core->db, "main") == SQLITE_TXN_WRITE ? Qtrue
                                                                                                         : Qfalse;
}

/* call-seq: database.read_only? -> true or false */
static VALUE database_read_only_p(VALUE self)
{
    const struct sqlite_core *core = sqlite_database_of(self)->core;
    return core && sqlite_core_alive(core) && sqlite_api.db_readonly(core->db, "main") == 1 ? Qtrue : Qfalse;
}

/* call-seq: database.path -> String; empty for a database in memory */
static VALUE database_path(VALUE self)
{
    const struct sqlite_core *core = sqlite_database_of(self)->core;
    const char *path = core && sqlite_core_alive(core) ? sqlite_api.db_filename(core->db, "main") : NULL;
    return rb_utf8_str_new_cstr(path ? path : "");
}

/*
 * call-seq: database.close -> nil
 *
 * Ends the connection, and rolls back an open transaction. While a statement runs, that statement ends first, with an
 * IOError. In a child of fork nothing happens: the locks and the file are the parent's.
 */
static VALUE database_close(VALUE self)
{
    struct sqlite_core *core = sqlite_database_of(self)->core;
    if (!core || !sqlite_core_alive(core)) return Qnil;
    core->closing = true;
    if (!core->busy) close_core(core);
    return Qnil;
}

static VALUE load_body(struct sqlite_call *call)
{
    sqlite3 *db = call->database->core->db;
    char *message = NULL;
    const char *path = StringValueCStr(call->arguments[0]);
    sqlite_api.db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
    call->database->stepping = true; // its start may run statements
    int code = sqlite_api.load_extension(db, path, NULL, &message);
    call->database->stepping = false;
    sqlite_keep_waiting(call->database);
    sqlite_api.db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    VALUE text = code != SQLITE_OK ? rb_utf8_str_new_cstr(message ? message : sqlite_api.errstr(code)) : Qnil;
    sqlite_api.release(message);
    sqlite_settle(call->database);
    return text;
}

/*
 * call-seq: database.load_extension(path) -> nil or message
 *
 * Loads an extension; SQL cannot.
 */
static VALUE database_load_extension(VALUE self, VALUE path)
{
    struct sqlite_call call = {.self = self, .body = load_body, .arguments = {path}};
    return sqlite_call(&call);
}

void sqlite_database_define(void)
{
    id_call = rb_intern("call");
    id_error = rb_intern("error");
    id_let_others_in = rb_intern("let_others_in");
    VALUE database = sqlite_cDatabase;
    rb_define_method(database, "open", database_open, 2);
    rb_define_method(database, "wait_for_locks_by", database_wait_by, 2);
    rb_define_method(database, "attended=", database_set_attended, 1);
    rb_define_method(database, "touched?", database_touched_p, 0);
    rb_define_method(database, "touched=", database_set_touched, 1);
    rb_define_method(database, "error_map=", database_set_error_map, 1);
    rb_define_method(database, "timeout=", database_set_timeout, 1);
    rb_define_method(database, "local=", database_set_local, 1);
    rb_define_method(database, "stored_values=", database_set_stored_values, 1);
    rb_define_method(database, "in_transaction?", database_in_transaction_p, 0);
    rb_define_method(database, "busy?", database_busy_p, 0);
    rb_define_method(database, "reading?", database_reading_p, 0);
    rb_define_method(database, "closed?", database_closed_p, 0);
    rb_define_method(database, "forked?", database_forked_p, 0);
    rb_define_method(database, "writing?", database_writing_p, 0);
    rb_define_method(database, "read_only?", database_read_only_p, 0);
    rb_define_method(database, "path", database_path, 0);
    rb_define_method(database, "close", database_close, 0);
    rb_define_method(database, "load_extension", database_load_extension, 1);
}
