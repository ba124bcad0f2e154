// Open and close, and what SQLite calls while a statement runs.
#include "db/sqlite/link.h"

#include "os/budget.h"
#include "os/fork.h"
#include "scope/scope.h"
#include "task/current.h"

#include <stdlib.h>
#include <string.h>

// Instructions between two calls of the progress handler: some 10 µs.
enum { INSTRUCTIONS = 1000 };

// Nanoseconds that a statement may run before other tasks have a turn. Beside plain threads a turn is expensive: a
// CPU-bound thread keeps the GVL for its whole quantum.
static const int64_t TURN = 1000000;
static const int64_t TURN_IN_THREAD = 10000000;

VALUE sqlite_cLink;
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

static void sqlite_link_mark(void *pointer)
{
    const struct sqlite_link *link = pointer;
    rb_gc_mark_movable(link->waiter);
    rb_gc_mark_movable(link->waiting);
    rb_gc_mark_movable(link->error_map);
    // SQLite has their addresses, and no way to tell it of others.
    for (const struct sqlite_function *function = link->functions; function; function = function->next)
        rb_gc_mark(function->callable);
    for (const struct sqlite_group *group = link->groups; group; group = group->next)
        rb_gc_mark(group->object);
}

static void sqlite_link_compact(void *pointer)
{
    struct sqlite_link *link = pointer;
    link->waiter = rb_gc_location(link->waiter);
    link->waiting = rb_gc_location(link->waiting);
    link->error_map = rb_gc_location(link->error_map);
}

// A fiber that was abandoned inside of SQLite keeps the connection open: its frames are gone, and nothing can say in
// what state they left SQLite.
static void sqlite_link_release(void *pointer)
{
    struct sqlite_link *link = pointer;
    struct sqlite_core *core = link->core;
    if (core && core->born != fork_count()) sqlite_leave_files(core);
    if (core && !(core->busy && core->db)) {
        close_core(core);
        sqlite_core_release(core);
    }
    xfree(link);
}

static size_t sqlite_link_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct sqlite_link) + sizeof(struct sqlite_core);
}

const rb_data_type_t sqlite_link_type = {
    .wrap_struct_name = "Heddle::DB::SQLite::Link",
    .function = {.dmark = sqlite_link_mark,
                 .dfree = sqlite_link_release,
                 .dsize = sqlite_link_memsize,
                 .dcompact = sqlite_link_compact},
    // No write barriers: SQLite's callbacks store what they aggregate, and links are few.
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

VALUE sqlite_link_allocate(VALUE klass)
{
    struct sqlite_link *link;
    VALUE self = TypedData_Make_Struct(klass, struct sqlite_link, &sqlite_link_type, link);
    link->waiter = link->waiting = link->error_map = Qnil;
    link->span = DEADLINE_NEVER;
    return self;
}

// ---- what SQLite calls

static VALUE give_way(VALUE unused)
{
    bool in_thread = NIL_P(context_of_fiber().scheduler);
    budget_give_way();
    if (in_thread) rb_thread_schedule();
    return unused;
}

// The progress handler: 0 to go on.
static int progress(void *pointer)
{
    struct sqlite_link *link = pointer;
    if (!link->stepping) return 0;
    if (link->jump || link->core->closing) return 1;
    deadline_t now = deadline_now();
    if (!link->turn_began) link->turn_began = now;
    if (now - link->turn_began < TURN) return 0;
    if (now - link->turn_began < TURN_IN_THREAD && NIL_P(context_of_fiber().scheduler)) return 0;
    int state = 0;
    rb_protect(give_way, Qnil, &state);
    link->turn_began = deadline_now();
    return sqlite_keep(link, state) || link->core->closing;
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
    struct sqlite_link *link = pointer;
    if (!link->stepping || link->jump || link->core->closing || NIL_P(link->waiter)) return 0;
    struct waiting waiting = {link->waiter, count};
    int state = 0;
    VALUE again = rb_protect(wait_for_lock, (VALUE)&waiting, &state);
    link->turn_began = deadline_now();
    return !sqlite_keep(link, state) && RTEST(again) && !link->core->closing;
}

void sqlite_keep_waiting(struct sqlite_link *link)
{
    sqlite_api.busy_handler(link->core->db, locked, link);
}

// The update hook, which SQLite calls for each row of a table with row numbers.
static void changes(void *pointer, int what, const char *base, const char *table, int64_t id)
{
    struct sqlite_link *link = pointer;
    (void)base;
    if (what != SQLITE_INSERT || !link->target || link->inserted || strcmp(table, link->target) != 0) return;
    link->inserted = true;
    link->first_id = id;
}

// The commit hook: nothing that is out of order is committed.
static int refuse_commit(void *pointer)
{
    return ((struct sqlite_link *)pointer)->misordered;
}

RBIMPL_ATTR_NORETURN()
static void raise_forked(void)
{
    rb_raise(rb_eIOError, "this connection belongs to the parent process: open another one after the fork");
}

bool sqlite_keep(struct sqlite_link *link, int state)
{
    if (link->core->born != fork_count()) {
        if (state) rb_jump_tag(state);
        raise_forked();
    }
    if (state) link->jump = state;
    return state != 0;
}

// A comparison cannot make a statement fail, so it may have succeeded, and in a transaction there is no commit yet.
static void undo_misorder(struct sqlite_link *link, struct sqlite_statement *statement)
{
    if (!link->misordered || statement->reads || sqlite_api.get_autocommit(link->core->db)) return;
    sqlite_api.reset(statement->at);
    sqlite_api.exec(link->core->db, "ROLLBACK", NULL, NULL, NULL);
}

int sqlite_step(struct sqlite_link *link, struct sqlite_statement *statement)
{
    if (link->core->born != fork_count()) raise_forked(); // by the Ruby code that a value needs
    link->stepping = true;
    int code = sqlite_api.step(statement->at);
    link->stepping = false;
    undo_misorder(link, statement);
    sqlite_settle(link);
    return code;
}

void sqlite_settle(struct sqlite_link *link)
{
    int state = link->jump;
    link->jump = 0;
    if (state) rb_jump_tag(state);
    if (link->core->closing) rb_raise(rb_eIOError, "the connection was closed meanwhile");
}

// ---- calls

static VALUE call_body(VALUE argument)
{
    struct sqlite_call *call = (struct sqlite_call *)argument;
    return call->body(call);
}

static VALUE call_in_time(VALUE argument)
{
    struct sqlite_call *call = (struct sqlite_call *)argument;
    int64_t span = call->link->span;
    if (span == DEADLINE_NEVER) return call->body(call);
    struct scope *scope = scope_new(SCOPE_DEADLINE, span);
    VALUE guard = scope->self;
    scope_open(scope, scope_chain_current(), deadline_after(deadline_now(), span));
    VALUE result = scope_call(scope, call_body, argument);
    RB_GC_GUARD(guard);
    return result;
}

static bool somebody_waits(const struct sqlite_link *link)
{
    return !NIL_P(link->waiting) && RHASH_SIZE(link->waiting) > 0;
}

static bool in_transaction(const struct sqlite_core *core)
{
    return core && sqlite_core_alive(core) && !sqlite_api.get_autocommit(core->db);
}

bool sqlite_in_transaction(VALUE self)
{
    return in_transaction(sqlite_link_of(self)->core);
}

bool sqlite_is_closed(VALUE self)
{
    const struct sqlite_core *core = sqlite_link_of(self)->core;
    return !core || !sqlite_core_alive(core) || core->closing;
}

bool sqlite_is_forked(VALUE self)
{
    const struct sqlite_core *core = sqlite_link_of(self)->core;
    return core && core->born != fork_count();
}

bool sqlite_at_ease(const struct sqlite_link *link)
{
    return in_transaction(link->core) || (!link->attended && !somebody_waits(link));
}

static VALUE call_end(VALUE argument)
{
    struct sqlite_call *call = (struct sqlite_call *)argument;
    struct sqlite_core *core = call->link->core;
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
    call->link->target = NULL;
    sqlite_finalize_doomed(core);
    if (core->closing) close_core(core);
    if (call->lets_others_in && somebody_waits(call->link))
        rb_funcall(call->link->waiter, id_let_others_in, 1, in_transaction(core) ? Qtrue : Qfalse);
    return Qnil;
}

VALUE sqlite_call(struct sqlite_call *call)
{
    call->link = sqlite_link_of(call->self);
    struct sqlite_core *core = call->link->core;
    if (core && core->born != fork_count()) raise_forked();
    if (!core || !core->db || core->closing) rb_raise(rb_eIOError, "closed database");
    if (core->busy)
        rb_raise(sqlite_eBusy,
                 "a statement is running on this connection: give each fiber and thread a connection of its own "
                 "(Heddle::DB::Pool)");
    core->busy = true;
    call->link->jump = 0;
    call->link->misordered = false;
    call->link->turn_began = 0;
    VALUE result = rb_ensure(call_in_time, (VALUE)call, call_end, (VALUE)call);
    RB_GC_GUARD(call->self);
    return result;
}

VALUE sqlite_error_value(struct sqlite_link *link, int code)
{
    sqlite3 *db = link->core->db;
    int extended = sqlite_api.extended_errcode(db);
    if ((extended & 0xff) != (code & 0xff)) extended = code; // a misuse sets none
    VALUE message = rb_utf8_str_new_cstr((extended == sqlite_api.extended_errcode(db)) ? sqlite_api.errmsg(db)
                                                                                       : sqlite_api.errstr(code));
    int offset = sqlite_api.error_offset(db);
    return rb_funcall(link->error_map, id_error, 3, INT2NUM(extended), message, INT2NUM(offset));
}

// ---- methods

/*
 * call-seq: link.open(path, flags) -> nil or error
 *
 * Opens the database. +flags+ are those of sqlite3_open_v2.
 */
static VALUE link_open(VALUE self, VALUE path, VALUE flags)
{
    struct sqlite_link *link = sqlite_link_of(self);
    if (link->core) rb_raise(rb_eRuntimeError, "the link is open already");
    const char *name = StringValueCStr(path);
    int with = NUM2INT(flags);
    sqlite_leave_parents_files();
    struct sqlite_core *core = ZALLOC(struct sqlite_core);
    core->references = 1;
    core->born = fork_count();
    link->core = core;
    int code = sqlite_api.open_v2(name, &core->db, with, NULL);
    if (!core->db) rb_memerror();
    sqlite_core_note(core);
    if (code != SQLITE_OK) {
        VALUE error = sqlite_error_value(link, code);
        close_core(core);
        return error;
    }
    sqlite_api.extended_result_codes(core->db, 1);
    sqlite_api.db_config(core->db, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
    sqlite_api.db_config(core->db, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
    sqlite_api.progress_handler(core->db, INSTRUCTIONS, progress, link);
    sqlite_api.busy_handler(core->db, locked, link);
    sqlite_api.commit_hook(core->db, refuse_commit, link);
    sqlite_api.set_authorizer(core->db, sqlite_authorize, link);
    sqlite_api.update_hook(core->db, changes, link);
    RB_GC_GUARD(path);
    return Qnil;
}

/*
 * call-seq: link.wait_for_locks_by(waiter, waiting) -> waiter
 *
 * When the database is locked, SQLite asks +waiter.call(count)+ whether to try again. A pragma for the time of such
 * waits sets +waiter.seconds+. A statement that #run has run ends with +waiter.let_others_in(in_transaction)+, unless
 * the Hash +waiting+ is empty.
 */
static VALUE link_wait_by(VALUE self, VALUE waiter, VALUE waiting)
{
    struct sqlite_link *link = sqlite_link_of(self);
    Check_Type(waiting, T_HASH);
    link->waiter = waiter;
    link->waiting = waiting;
    return waiter;
}

/*
 * call-seq: link.attended = true or false
 *
 * Whether the driver has something to do before or after a statement outside of a transaction, beside letting others
 * in. Then such a statement does not run without the driver.
 */
static VALUE link_set_attended(VALUE self, VALUE attended)
{
    sqlite_link_of(self)->attended = RTEST(attended);
    return attended;
}

/* call-seq: link.touched? -> true or false: whether the connection's next user would notice what was prepared */
static VALUE link_touched_p(VALUE self)
{
    return sqlite_link_of(self)->touched ? Qtrue : Qfalse;
}

/* call-seq: link.touched = true or false */
static VALUE link_set_touched(VALUE self, VALUE touched)
{
    sqlite_link_of(self)->touched = RTEST(touched);
    return touched;
}

/* call-seq: link.error_map = object */
static VALUE link_set_error_map(VALUE self, VALUE error_map)
{
    return sqlite_link_of(self)->error_map = error_map;
}

/* call-seq: link.timeout = seconds */
static VALUE link_set_timeout(VALUE self, VALUE seconds)
{
    sqlite_link_of(self)->span = deadline_span(seconds);
    return seconds;
}

/* call-seq: link.stored_values = true or false. Whether values come as SQLite stores them: for libraries that read
 * declared types themselves. */
static VALUE link_set_stored_values(VALUE self, VALUE stored)
{
    sqlite_link_of(self)->stored = RTEST(stored);
    return stored;
}

/* call-seq: link.local = true or false */
static VALUE link_set_local(VALUE self, VALUE local)
{
    sqlite_link_of(self)->local = RTEST(local);
    return local;
}

/* call-seq: link.in_transaction? -> true or false */
static VALUE link_in_transaction_p(VALUE self)
{
    return sqlite_in_transaction(self) ? Qtrue : Qfalse;
}

/* call-seq: link.busy? -> true or false */
static VALUE link_busy_p(VALUE self)
{
    const struct sqlite_core *core = sqlite_link_of(self)->core;
    return core && core->busy ? Qtrue : Qfalse;
}

/* call-seq: link.reading? -> true or false: whether the rows of a statement are still being fetched */
static VALUE link_reading_p(VALUE self)
{
    const struct sqlite_core *core = sqlite_link_of(self)->core;
    for (const struct sqlite_statement *at = core ? core->statements : NULL; at; at = at->next) {
        if (at->open) return Qtrue;
    }
    return Qfalse;
}

/* call-seq: link.closed? -> true or false */
static VALUE link_closed_p(VALUE self)
{
    return sqlite_is_closed(self) ? Qtrue : Qfalse;
}

/* call-seq: link.forked? -> true or false */
static VALUE link_forked_p(VALUE self)
{
    return sqlite_is_forked(self) ? Qtrue : Qfalse;
}

/* call-seq: link.writing? -> true or false: whether it has the lock for writing */
static VALUE link_writing_p(VALUE self)
{
    const struct sqlite_core *core = sqlite_link_of(self)->core;
    return core && sqlite_core_alive(core) && sqlite_api.txn_state(core->db, "main") == SQLITE_TXN_WRITE ? Qtrue
                                                                                                         : Qfalse;
}

/* call-seq: link.read_only? -> true or false */
static VALUE link_read_only_p(VALUE self)
{
    const struct sqlite_core *core = sqlite_link_of(self)->core;
    return core && sqlite_core_alive(core) && sqlite_api.db_readonly(core->db, "main") == 1 ? Qtrue : Qfalse;
}

/* call-seq: link.path -> String; empty for a database in memory */
static VALUE link_path(VALUE self)
{
    const struct sqlite_core *core = sqlite_link_of(self)->core;
    const char *path = core && sqlite_core_alive(core) ? sqlite_api.db_filename(core->db, "main") : NULL;
    return rb_utf8_str_new_cstr(path ? path : "");
}

/*
 * call-seq: link.close -> nil
 *
 * Ends the connection, and rolls back an open transaction. While a statement runs, that statement ends first, with an
 * IOError. In a child of fork nothing happens: the locks and the file are the parent's.
 */
static VALUE link_close(VALUE self)
{
    struct sqlite_core *core = sqlite_link_of(self)->core;
    if (!core || !sqlite_core_alive(core)) return Qnil;
    core->closing = true;
    if (!core->busy) close_core(core);
    return Qnil;
}

static VALUE load_body(struct sqlite_call *call)
{
    sqlite3 *db = call->link->core->db;
    char *message = NULL;
    const char *path = StringValueCStr(call->arguments[0]);
    sqlite_api.db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
    call->link->stepping = true; // its start may run statements
    int code = sqlite_api.load_extension(db, path, NULL, &message);
    call->link->stepping = false;
    sqlite_keep_waiting(call->link);
    sqlite_api.db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    VALUE text = code != SQLITE_OK ? rb_utf8_str_new_cstr(message ? message : sqlite_api.errstr(code)) : Qnil;
    sqlite_api.release(message);
    sqlite_settle(call->link);
    return text;
}

/*
 * call-seq: link.load_extension(path) -> nil or message
 *
 * Loads an extension; SQL cannot.
 */
static VALUE link_load_extension(VALUE self, VALUE path)
{
    struct sqlite_call call = {.self = self, .body = load_body, .arguments = {path}};
    return sqlite_call(&call);
}

void sqlite_link_init(void)
{
    id_call = rb_intern("call");
    id_error = rb_intern("error");
    id_let_others_in = rb_intern("let_others_in");
    VALUE link = sqlite_cLink;
    rb_define_method(link, "open", link_open, 2);
    rb_define_method(link, "wait_for_locks_by", link_wait_by, 2);
    rb_define_method(link, "attended=", link_set_attended, 1);
    rb_define_method(link, "touched?", link_touched_p, 0);
    rb_define_method(link, "touched=", link_set_touched, 1);
    rb_define_method(link, "error_map=", link_set_error_map, 1);
    rb_define_method(link, "timeout=", link_set_timeout, 1);
    rb_define_method(link, "local=", link_set_local, 1);
    rb_define_method(link, "stored_values=", link_set_stored_values, 1);
    rb_define_method(link, "in_transaction?", link_in_transaction_p, 0);
    rb_define_method(link, "busy?", link_busy_p, 0);
    rb_define_method(link, "reading?", link_reading_p, 0);
    rb_define_method(link, "closed?", link_closed_p, 0);
    rb_define_method(link, "forked?", link_forked_p, 0);
    rb_define_method(link, "writing?", link_writing_p, 0);
    rb_define_method(link, "read_only?", link_read_only_p, 0);
    rb_define_method(link, "path", link_path, 0);
    rb_define_method(link, "close", link_close, 0);
    rb_define_method(link, "load_extension", link_load_extension, 1);
}
