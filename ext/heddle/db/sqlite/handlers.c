// The progress handler and the busy handler of a connection of the gem sqlite3: by them its statements let other tasks
// run (lib/heddle/sqlite3.rb). The gem has the connection, its statements and all calls; nothing here opens, steps or
// closes. So:
//
// - A handler runs in the middle of a call of the gem, on the stack of the fiber that made it. While another fiber
//   runs, the connection is suspended, and SQLite forbids its use: the gem's methods wait (lib/heddle/sqlite3).
// - No exception passes through SQLite's frames. A handler keeps it, and makes SQLite stop; the gem then makes an error
//   of SQLite's, and there the kept one is raised in its place.
// - The methods that wait are prepended to the gem's classes when a connection is suspended for the first time: until
//   then they would only cost time.
// - A connection with a mutex is left alone: the native thread that runs a statement holds it, so that another thread
//   would wait for it with the GVL. So is one that shares its cache with others, which has a mutex even without.
// - In a child of fork, a handler never returns into SQLite: it jumps over SQLite's frames.
#include "db/sqlite/database.h"

#include "loop/park.h"
#include "os/budget.h"
#include "os/fork.h"
#include "os/main_ractor.h"
#include "task/current.h"

#include <string.h>
#include <time.h>

static const int64_t MILLISECOND = 1000000;

// Nanoseconds: the longest nap of one that waits for a lock. Nothing tells when the lock is free.
static const int64_t LONGEST = 10000000;

static VALUE unsettled; // Hash of the Handlers whose connection is suspended, or which keep an exception
static VALUE guards;    // Array of classes of the gem and modules to prepend, in turn; empty once that was done
static ID id_call;

struct handlers {
    VALUE self;
    sqlite3 *db; // NULL once closed
    unsigned born;
    bool collected;             // the object is gone; SQLite has this record until it closes the connection
    VALUE fiber;                // whose call is suspended; or 0
    VALUE error;                // that was kept from SQLite; or 0
    VALUE keeper;               // … in this fiber
    bool fatal;                 // … and which no rescue stops
    bool ended;                 // … instead of what is no exception
    int64_t busy_span;          // nanoseconds to wait for a lock
    deadline_t busy_until;      // the end of the current wait
    int64_t statement_span;     // nanoseconds that a statement may run; 0 for ever
    deadline_t statement_until; // the end of the current one; 0 before its clock runs
    struct sqlite_slice slice;
};

static void handlers_mark(void *pointer)
{
    const struct handlers *handlers = pointer;
    rb_gc_mark(handlers->self); // SQLite's handlers use it: it must not move
    if (handlers->fiber) rb_gc_mark(handlers->fiber);
    if (handlers->error) rb_gc_mark(handlers->error), rb_gc_mark(handlers->keeper);
}

static void handlers_free(void *pointer)
{
    if (main_ractor_releases(pointer, handlers_free)) return; // SQLite may be closing the connection in that one
    struct handlers *handlers = pointer;
    handlers->collected = true;
    if (!handlers->db) xfree(handlers);
}

static size_t handlers_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct handlers);
}

// Pinned, as all that it refers to: SQLite's handlers find the object by its address.
static const rb_data_type_t handlers_type = {
    .wrap_struct_name = "Heddle::DB::SQLite::Handlers",
    .function = {.dmark = handlers_mark, .dfree = handlers_free, .dsize = handlers_memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY, // no write barriers: handlers store what they keep
};

static struct handlers *handlers_of(VALUE self)
{
    return rb_check_typeddata(self, &handlers_type);
}

// SQLite closes the connection; the GC may have called. Statements that were not finalized may outlive it.
static void closed(void *pointer)
{
    struct handlers *handlers = pointer;
    sqlite_api.progress_handler(handlers->db, 0, NULL, NULL);
    sqlite_api.busy_handler(handlers->db, NULL, NULL);
    handlers->db = NULL;
    if (handlers->collected) xfree(handlers);
}

// ---- other fibers run

struct suspension {
    struct handlers *handlers;
    struct loop *loop;
    int64_t span;   // of a nap
    VALUE callable; // a busy handler in Ruby, and …
    int count;      // … its argument; or 0
    VALUE answer;
};

// Calls no method, as all that a handler does.
static void install_guards(void)
{
    while (RARRAY_LEN(guards) > 0) {
        VALUE module = rb_ary_pop(guards), klass = rb_ary_pop(guards);
        rb_prepend_module(klass, module);
    }
}

static VALUE run_others(VALUE argument)
{
    struct suspension *suspension = (struct suspension *)argument;
    install_guards();
    rb_hash_aset(unsettled, suspension->handlers->self, Qtrue);
    suspension->handlers->fiber = rb_fiber_current();
    if (suspension->callable) {
        suspension->answer = rb_funcall(suspension->callable, id_call, 1, INT2NUM(suspension->count));
    } else if (suspension->span) {
        loop_enter(suspension->loop);
        loop_sleep(suspension->loop, suspension->span);
    } else {
        budget_give_way_to_all();
    }
    return Qnil;
}

// What is no exception cannot be raised later. Of those only Fiber#kill is made good: see handlers_settle.
static void keep(struct handlers *handlers, int state)
{
    VALUE error = rb_errinfo();
    enum { TAG_FATAL = 8 }; // Ruby's own, of rb_exc_fatal
    handlers->ended = !is_exception(error);
    handlers->fatal = !handlers->ended && state == TAG_FATAL;
    if (handlers->ended)
        error = rb_exc_new_cstr(heddle_eCancellation, "the fiber was ended in the middle of a statement of SQLite");
    handlers->error = error;
    handlers->keeper = rb_fiber_current();
    rb_set_errinfo(Qnil);
}

// Lets other fibers run. Returns whether SQLite may go on. Calls no method for those who wait for the connection: Ruby
// would raise the thread's interrupts there, which belong to the code outside of all tasks.
static bool suspend(struct suspension suspension)
{
    struct handlers *handlers = suspension.handlers;
    int state = 0;
    VALUE before = handlers->fiber;
    rb_protect(run_others, (VALUE)&suspension, &state);
    handlers->fiber = before;
    if (handlers->born != fork_count()) {
        if (state) rb_jump_tag(state);
        rb_raise(rb_eIOError, "this connection belongs to the parent process: open another one after the fork");
    }
    bool keeps = state && (!suspension.callable || is_exception(rb_errinfo()));
    if (keeps) {
        keep(handlers, state);
    } else if (!before) {
        rb_hash_delete(unsettled, handlers->self);
    }
    if (state && !keeps) rb_jump_tag(state); // a kill or a throw in the program's handler: the gem's, as ever
    return !handlers->error && (!suspension.callable || suspension.answer != Qfalse);
}

// Whether an attached database may share its cache. A file has a name, whose parameters tell; one in memory has none.
// That the connection's own database does not is known when it is opened.
static bool shares_cache(const struct handlers *handlers)
{
    enum { FIRST_ATTACHED = 2 };
    const char *name;
    for (int i = FIRST_ATTACHED; (name = sqlite_api.db_name(handlers->db, i)); i++) {
        const char *file = sqlite_api.db_filename(handlers->db, name);
        if (!file || !*file) return true;
        const char *cache = sqlite_api.uri_parameter(file, "cache");
        if (cache && strcmp(cache, "shared") == 0) return true;
    }
    return false;
}

// The loop on which other fibers can run now; or NULL.
static struct loop *loop_for(const struct handlers *handlers)
{
    if (rb_during_gc()) return NULL; // a commit by the end of a statement that was collected
    struct loop *loop = context_of_fiber().loop;
    return loop && !shares_cache(handlers) ? loop : NULL;
}

// ---- what SQLite calls

static bool statement_over(struct handlers *handlers)
{
    if (!handlers->statement_span) return false;
    deadline_t now = deadline_now();
    if (handlers->statement_until) return now > handlers->statement_until;
    handlers->statement_until = deadline_after(now, handlers->statement_span);
    return false;
}

// The progress handler: 0 to go on.
static int progress(void *pointer)
{
    struct handlers *handlers = pointer;
    if (handlers->error || statement_over(handlers)) return 1;
    struct loop *loop = context_of_fiber().loop;
    if (!loop || !sqlite_slice_over(&handlers->slice, loop, false) || !loop_for(handlers)) return 0;
    return !suspend((struct suspension){.handlers = handlers, .loop = loop});
}

// The times of SQLite's own handler. It sleeps with the GVL, as that one does.
static void sleep_as_sqlite_does(int count, int64_t left)
{
    static const uint8_t NAPS[] = {1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100};
    enum { LAST = sizeof(NAPS) - 1 };
    int64_t span = NAPS[count < LAST ? count : LAST] * MILLISECOND;
    if (span > left) span = left;
    struct timespec time = {.tv_nsec = (long)span};
    nanosleep(&time, NULL);
}

// The busy handler: 0 to give up.
static int locked(void *pointer, int count)
{
    struct handlers *handlers = pointer;
    if (handlers->error) return 0;
    deadline_t now = deadline_now();
    if (count == 0) handlers->busy_until = deadline_after(now, handlers->busy_span);
    int64_t left = handlers->busy_until - now;
    if (left <= 0) return 0;
    struct loop *loop = loop_for(handlers);
    if (!loop) {
        sleep_as_sqlite_does(count, left);
        return 1;
    }
    int64_t span = count < 4 ? MILLISECOND << count : LONGEST;
    return suspend((struct suspension){.handlers = handlers, .loop = loop, .span = span < left ? span : left});
}

// ---- methods

// The gem's records of a database and of a statement begin with SQLite's pointer: Handlers.agree? checks that.
static void *first_member(VALUE object)
{
    if (!RB_TYPE_P(object, T_DATA) || !RTYPEDDATA_P(object) || !DATA_PTR(object)) return NULL;
    return *(void **)DATA_PTR(object);
}

static int note_call(void *called)
{
    *(bool *)called = true;
    return 0;
}

/*
 * call-seq: Handlers.agree?(database, statement) -> true or false
 *
 * Whether this gem is one that Handlers can serve. +database+ has just loaded Heddle's code, and has no statement but
 * this one.
 */
static VALUE handlers_agree_p(VALUE klass, VALUE database, VALUE statement)
{
    (void)klass;
    sqlite3 *db = first_member(database);
    if (!db || db != sqlite_loaded_by || !sqlite_api.progress_handler || !sqlite_api.set_clientdata) return Qfalse;
    if (sqlite_api.next_stmt(db, NULL) != first_member(statement)) return Qfalse;
    bool called = false;
    sqlite_api.progress_handler(db, SQLITE_INSTRUCTIONS, note_call, &called);
    const char *count =
        "with recursive c (n) as (select 1 union all select n + 1 from c limit 1000) select sum(n) from c";
    sqlite_api.exec(db, count, NULL, NULL, NULL);
    sqlite_api.progress_handler(db, 0, NULL, NULL);
    return called ? Qtrue : Qfalse;
}

/* call-seq: Handlers.unsettled -> Hash: the keys are suspended, or keep an exception */
static VALUE handlers_unsettled(VALUE klass)
{
    (void)klass;
    return unsettled;
}

static void watch_progress(struct handlers *handlers)
{
    sqlite_api.progress_handler(handlers->db, SQLITE_INSTRUCTIONS, progress, handlers);
}

static void watch_locks(struct handlers *handlers)
{
    if (handlers->busy_span) sqlite_api.busy_handler(handlers->db, locked, handlers);
}

/* call-seq: Handlers.attach(database) -> handlers; nil for a connection that must be left alone */
static VALUE handlers_attach(VALUE klass, VALUE database)
{
    sqlite3 *db = first_member(database);
    if (!db || sqlite_api.db_mutex(db)) return Qnil;
    struct handlers *handlers;
    VALUE self = TypedData_Make_Struct(klass, struct handlers, &handlers_type, handlers);
    handlers->self = self;
    handlers->born = fork_count();
    if (sqlite_api.set_clientdata(db, "heddle", handlers, closed) != SQLITE_OK) rb_memerror();
    handlers->db = db;
    watch_progress(handlers);
    return self;
}

/*
 * call-seq: handlers.busy_timeout = milliseconds
 *
 * Waits for locks as SQLite's own handler does, but lets other tasks run. Right behind SQLite's own, which it replaces.
 */
static VALUE handlers_set_busy_timeout(VALUE self, VALUE milliseconds)
{
    struct handlers *handlers = handlers_of(self);
    int span = NUM2INT(milliseconds);
    handlers->busy_span = span > 0 ? span * MILLISECOND : 0;
    if (handlers->db) watch_locks(handlers);
    return milliseconds;
}

/* call-seq: handlers.statement_timeout = milliseconds. The gem's own method has removed the progress handler. */
static VALUE handlers_set_statement_timeout(VALUE self, VALUE milliseconds)
{
    struct handlers *handlers = handlers_of(self);
    int span = NUM2INT(milliseconds);
    handlers->statement_span = span > 0 ? span * MILLISECOND : 0;
    handlers->statement_until = 0;
    if (handlers->db) watch_progress(handlers);
    return milliseconds;
}

/* call-seq: handlers.statement_timeout? -> true or false */
static VALUE handlers_statement_timeout_p(VALUE self)
{
    return handlers_of(self)->statement_span ? Qtrue : Qfalse;
}

/* call-seq: handlers.begin_statement(statement) -> nil. The clock of its timeout runs anew, unless it is running. */
static VALUE handlers_begin_statement(VALUE self, VALUE statement)
{
    struct handlers *handlers = handlers_of(self);
    sqlite3_stmt *at = NIL_P(statement) ? NULL : first_member(statement);
    if (!at || !sqlite_api.stmt_busy(at)) handlers->statement_until = 0;
    return Qnil;
}

static int read_milliseconds(void *into, int count, char **values, char **names)
{
    (void)names;
    if (count && values[0]) *(int *)into = atoi(values[0]);
    return 0;
}

static VALUE adopt(VALUE self)
{
    struct handlers *handlers = handlers_of(self);
    if (!handlers->db) return Qnil;
    int span = 0;
    sqlite_api.exec(handlers->db, "pragma busy_timeout", read_milliseconds, &span, NULL);
    handlers->busy_span = span * MILLISECOND;
    watch_locks(handlers);
    return Qnil;
}

/*
 * call-seq: handlers.with_pragma { } -> value
 *
 * For a statement that reads or sets SQLite's own +pragma busy_timeout+, which puts its own handler back.
 */
static VALUE handlers_with_pragma(VALUE self)
{
    struct handlers *handlers = handlers_of(self);
    if (!handlers->db) return rb_yield(Qnil);
    if (handlers->busy_span) sqlite_api.busy_timeout(handlers->db, (int)(handlers->busy_span / MILLISECOND));
    return rb_ensure(yield_nothing, Qnil, adopt, self);
}

/* call-seq: handlers.call_busy_handler(callable, count) -> true or false: a busy handler of the program's */
static VALUE handlers_call_busy_handler(VALUE self, VALUE callable, VALUE count)
{
    struct handlers *handlers = handlers_of(self);
    if (handlers->error) return Qfalse;
    struct suspension suspension = {.handlers = handlers, .callable = callable, .count = NUM2INT(count)};
    return suspend(suspension) ? Qtrue : Qfalse;
}

/* call-seq: handlers.suspended? -> true or false: whether another fiber is in the middle of a call */
static VALUE handlers_suspended_p(VALUE self)
{
    const struct handlers *handlers = handlers_of(self);
    return handlers->fiber && handlers->born == fork_count() && handlers->fiber != rb_fiber_current() ? Qtrue : Qfalse;
}

static int find_kept(VALUE self, VALUE unused, VALUE found)
{
    (void)unused;
    if (SYMBOL_P(self)) return ST_CONTINUE;
    struct handlers *handlers = handlers_of(self);
    if (!handlers->error || handlers->keeper != rb_fiber_current()) return ST_CONTINUE;
    *(struct handlers **)found = handlers;
    return ST_STOP;
}

static VALUE end_at_once(RB_BLOCK_CALL_FUNC_ARGLIST(unused, argument))
{
    (void)unused, (void)argument, (void)argc, (void)argv, (void)blockarg;
    return Qnil;
}

/* call-seq: Handlers.settle -> nil: raises what was kept in this fiber, if anything. SQLite has returned. */
static VALUE handlers_settle(VALUE klass)
{
    struct handlers *handlers = NULL;
    rb_hash_foreach(unsettled, find_kept, (VALUE)&handlers);
    if (!handlers) return klass;
    VALUE error = handlers->error;
    handlers->error = 0;
    rb_hash_delete(unsettled, handlers->self);
    if (handlers->fatal) rb_exc_fatal(error);
    if (handlers->ended)
        rb_fiber_resume(rb_fiber_new(end_at_once, Qnil), 0, NULL); // a killed fiber ends at each switch
    rb_exc_raise(error);
}

/* call-seq: Handlers.guard_by(classes_and_modules) -> array: what is prepended when it is needed first */
static VALUE handlers_guard_by(VALUE klass, VALUE classes_and_modules)
{
    (void)klass;
    return rb_ary_concat(guards, classes_and_modules);
}

/* call-seq: Handlers.install_guards -> nil */
static VALUE handlers_install_guards(VALUE klass)
{
    (void)klass;
    install_guards();
    return Qnil;
}

/*
 * Document-class: Heddle::DB::SQLite::Handlers
 *
 * SQLite's handlers of a connection of the gem sqlite3, see heddle/sqlite3.
 *
 * @api private
 */
void sqlite_handlers_define(VALUE sqlite)
{
    id_call = rb_intern("call");
    unsettled = rb_funcall(rb_hash_new(), rb_intern("compare_by_identity"), 0);
    rb_gc_register_mark_object(unsettled);
    guards = rb_ary_new();
    rb_gc_register_mark_object(guards);
    VALUE handlers_class = rb_define_class_under(sqlite, "Handlers", rb_cObject);
    rb_undef_alloc_func(handlers_class);
    rb_define_singleton_method(handlers_class, "agree?", handlers_agree_p, 2);
    rb_define_singleton_method(handlers_class, "attach", handlers_attach, 1);
    rb_define_singleton_method(handlers_class, "unsettled", handlers_unsettled, 0);
    rb_define_method(handlers_class, "busy_timeout=", handlers_set_busy_timeout, 1);
    rb_define_method(handlers_class, "statement_timeout=", handlers_set_statement_timeout, 1);
    rb_define_method(handlers_class, "statement_timeout?", handlers_statement_timeout_p, 0);
    rb_define_method(handlers_class, "begin_statement", handlers_begin_statement, 1);
    rb_define_method(handlers_class, "with_pragma", handlers_with_pragma, 0);
    rb_define_method(handlers_class, "call_busy_handler", handlers_call_busy_handler, 2);
    rb_define_method(handlers_class, "suspended?", handlers_suspended_p, 0);
    rb_funcall(sqlite, rb_intern("private_constant"), 1, ID2SYM(rb_intern("Handlers")));
    rb_define_singleton_method(handlers_class, "settle", handlers_settle, 0);
    rb_define_singleton_method(handlers_class, "guard_by", handlers_guard_by, 1);
    rb_define_singleton_method(handlers_class, "install_guards", handlers_install_guards, 0);
}
