#include "db/connection.h"
#include "loop/measuring.h"
#include "sync/pools.h"

#include "os/deadline.h"
#include "references.h"
#include "stream/stream.h"
#include "task/current.h"

static VALUE plain, calling, commit; // kinds of statements

// Whether anybody in this process has ever asked to be told of statements.
static bool watched;

// ---- operations

static const struct db_operations *known;

void db_operations_of(VALUE native_class, struct db_operations *operations)
{
    operations->native_class = native_class;
    operations->next = known;
    known = operations;
}

const struct db_operations *db_operations_known(VALUE native)
{
    const struct db_operations *operations = known;
    while (operations && operations->native_class != rb_obj_class(native))
        operations = operations->next;
    return operations;
}

// ---- the object

enum connection_state {
    IDLE,
    IN_EXCHANGE,
    RESERVED // for several exchanges, such as those of a COPY
};

// When a statement stays prepared: see StatementCache.
enum caching { CACHING_NEVER, CACHING_VIRTUAL, CACHING_IN_TRANSACTIONS, CACHING_ALWAYS };

struct connection {
    VALUE driver, native;
    const struct db_operations *operations; // NULL: the driver does everything
    VALUE cache;
    VALUE frames;  // Array of the open transactions, which Ruby code fills
    VALUE holder;  // the task, fiber or thread that has begun them; nil
    VALUE failure; // why the transaction can only be rolled back; nil
    VALUE runs;    // the text or statement of the exchange, while the process keeps records; nil
    uint64_t runner; // … and the number of the task that runs it
    int64_t span;  // nanoseconds that each call of the driver may take
    enum connection_state state;
    enum caching caching;
    bool returned;  // to its pool: nobody may use the connection
    bool notifying; // a handler gets the notices behind each exchange: see Notices
};

static void connection_references(void *pointer, reference_function *each)
{
    struct connection *connection = pointer;
    each(&connection->driver);
    each(&connection->native);
    each(&connection->cache);
    each(&connection->frames);
    each(&connection->holder);
    each(&connection->failure);
    each(&connection->runs);
}

REFERENCES(connection)

static size_t connection_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct connection);
}

static const rb_data_type_t connection_type = {
    .wrap_struct_name = "Heddle::DB::Connection",
    .function = {.dmark = connection_mark,
                 .dfree = RUBY_DEFAULT_FREE,
                 .dsize = connection_memsize,
                 .dcompact = connection_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct connection *connection_of(VALUE self)
{
    return rb_check_typeddata(self, &connection_type);
}

static VALUE connection_allocate(VALUE klass)
{
    struct connection *connection;
    VALUE self = TypedData_Make_Struct(klass, struct connection, &connection_type, connection);
    connection->driver = connection->native = connection->cache = connection->frames = Qnil;
    connection->holder = connection->failure = connection->runs = Qnil;
    connection->span = DEADLINE_NEVER;
    pools_add(self);
    return self;
}

static enum caching caching_for(VALUE mode)
{
    if (mode == ID2SYM(rb_intern("always"))) return CACHING_ALWAYS;
    if (mode == ID2SYM(rb_intern("transaction"))) return CACHING_IN_TRANSACTIONS;
    return mode == ID2SYM(rb_intern("virtual")) ? CACHING_VIRTUAL : CACHING_NEVER;
}

/* @api private connection.attach(driver, native, cache, mode, frames, timeout): native may be nil */
static VALUE attach(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 6, 6);
    struct connection *connection = connection_of(self);
    Check_Type(argv[4], T_ARRAY);
    RB_OBJ_WRITE(self, &connection->driver, argv[0]);
    RB_OBJ_WRITE(self, &connection->native, argv[1]);
    RB_OBJ_WRITE(self, &connection->cache, argv[2]);
    connection->caching = caching_for(argv[3]);
    RB_OBJ_WRITE(self, &connection->frames, argv[4]);
    connection->span = deadline_span(argv[5]);
    connection->operations = db_operations_known(connection->native);
    return self;
}

// ---- what the driver says

static bool is_closed(const struct connection *connection)
{
    if (connection->operations) return connection->operations->is_closed(connection->native);
    return RTEST(rb_funcall(connection->driver, rb_intern("closed?"), 0));
}

static bool is_forked(const struct connection *connection)
{
    if (connection->operations) return connection->operations->is_forked(connection->native);
    return RTEST(rb_funcall(connection->driver, rb_intern("forked?"), 0));
}

static bool db_in_transaction(const struct connection *connection)
{
    if (connection->operations) return connection->operations->in_transaction(connection->native);
    return RTEST(rb_funcall(connection->driver, rb_intern("in_transaction?"), 0));
}

static bool is_plain(const struct connection *connection, VALUE sql)
{
    const struct db_operations *operations = connection->operations;
    return operations && RB_TYPE_P(sql, T_STRING) && operations->is_plain(connection->native, sql);
}

static bool may_run(const struct connection *connection, VALUE prepared)
{
    return connection->operations && connection->operations->may_run(connection->native, prepared);
}

// `direct`: may_run.
static VALUE connection_run(const struct connection *connection, VALUE prepared, VALUE arguments, bool direct)
{
    VALUE result = direct ? connection->operations->run(connection->native, prepared, arguments) : Qundef;
    return result == Qundef ? rb_funcall(connection->driver, rb_intern("execute"), 2, prepared, arguments) : result;
}

static bool is_refusal(VALUE result)
{
    return RTEST(rb_obj_is_kind_of(result, rb_eException));
}

const struct db_operations *db_operations_for(VALUE self, VALUE *native)
{
    const struct connection *connection = connection_of(self);
    *native = connection->native;
    return connection->operations;
}

// ---- exchanges

// The owner of what runs now: the task or fiber, or the thread.
static VALUE current_holder(void)
{
    if (NIL_P(context_of_thread().scheduler)) return rb_thread_current();
    const struct task *task = task_current();
    return task ? task->owner.self : rb_fiber_current();
}

/* @api private Connection.holder -> Task, Fiber or Thread: the owner of a transaction that begins now */
static VALUE connection_holder(VALUE klass)
{
    (void)klass;
    return current_holder();
}

RBIMPL_ATTR_NORETURN()
static void refuse_caller(const char *reason)
{
    rb_raise(rb_path2class("Heddle::DB::Busy"), "%s", reason);
}

static bool in_block(const struct connection *connection)
{
    return RARRAY_LEN(connection->frames) > 0;
}

// The holder may be of an earlier transaction, where an interrupt came before it was forgotten.
static void check_caller(const struct connection *connection)
{
    if (connection->state != IDLE)
        refuse_caller("another fiber or thread is running a query on this connection: give each its own connection "
                      "(Heddle::DB::Pool), or let them take turns");
    if (connection->returned) refuse_caller("this connection was returned to its pool");
    if (in_block(connection) && connection->holder != current_holder())
        refuse_caller("another fiber or thread has an open transaction on this connection: use a Heddle::DB::Pool");
}

struct connection_exchange {
    VALUE self;
    struct connection *connection;
    VALUE (*body)(struct connection_exchange *exchange);
    VALUE arguments[3]; // the first is what is run, for messages: a text, a statement, or nil
    deadline_t late;    // when the first call of the driver must have ended
    bool closed;        // as it was at the beginning: a close in another thread may come in the middle
    bool complete;      // the body has returned
};

static VALUE exchange_body(VALUE argument)
{
    struct connection_exchange *exchange = (struct connection_exchange *)argument;
    VALUE value = exchange->body(exchange);
    exchange->complete = true;
    return value;
}

static VALUE tell_connection(VALUE argument)
{
    const struct connection_exchange *exchange = (const struct connection_exchange *)argument;
    VALUE error = rb_errinfo();
    if (!is_exception(error)) error = Qnil;
    bool lost = !NIL_P(error) && stream_is_failure(error);
    bool late = exchange->late != DEADLINE_NEVER && exchange->late <= deadline_now();
    return rb_funcall(exchange->self, rb_intern("request_interrupted"), 5, error, lost ? Qtrue : Qfalse,
                      exchange->closed ? Qtrue : Qfalse, late ? Qtrue : Qfalse, exchange->arguments[0]);
}

static VALUE let_next(VALUE argument)
{
    struct connection *connection = ((struct connection_exchange *)argument)->connection;
    if (connection->state == IN_EXCHANGE) connection->state = IDLE;
    connection->runs = Qnil;
    return Qnil;
}

// Other callers get Busy until the connection knows whether it stays open; a second exception may arrive meanwhile.
static VALUE db_end_exchange(VALUE argument)
{
    if (((struct connection_exchange *)argument)->complete) return let_next(argument);
    return rb_ensure(tell_connection, argument, let_next, argument);
}

// For reports.
static void note_run(const struct connection_exchange *exchange)
{
    const struct task *task = task_current();
    exchange->connection->runner = task ? task->owner.number : 0;
    RB_OBJ_WRITE(exchange->self, &exchange->connection->runs, exchange->arguments[0]);
}

/* @api private connection.running -> [Integer, String or Statement] or nil: the task's number, and what it runs */
static VALUE connection_running(VALUE self)
{
    const struct connection *connection = connection_of(self);
    return NIL_P(connection->runs) ? Qnil : rb_assoc_new(ULL2NUM(connection->runner), connection->runs);
}

// In a child of fork the holder is in the parent process: the driver refuses to do anything, and says why. Both are
// asked first: a driver in Ruby lets other threads run, which must not come between the check and the beginning.
static VALUE run_exchange(struct connection_exchange *exchange)
{
    struct connection *connection = exchange->connection = connection_of(exchange->self);
    exchange->closed = is_closed(connection);
    bool forked = exchange->closed && is_forked(connection);
    if (!forked && (connection->state != IDLE || connection->returned || in_block(connection)))
        check_caller(connection);
    connection->state = IN_EXCHANGE;
    if (measuring_bits() & MEASURE_RECORDS) note_run(exchange);
    exchange->late = deadline_in(connection->span);
    VALUE value = rb_ensure(exchange_body, (VALUE)exchange, db_end_exchange, (VALUE)exchange);
    RB_GC_GUARD(exchange->self);
    return value;
}

static VALUE yield(struct connection_exchange *exchange)
{
    (void)exchange;
    return rb_yield_values(0);
}

/*
 * @api private connection.exchange(what = nil) { … } -> the block's value
 *
 * Calls the block if the caller may use the connection, else raises Busy. If the block does not come to its end, calls
 * +request_interrupted(error, lost, closed, late, what)+: the exception or nil, whether it is an IOError, a
 * SystemCallError or one of TLS, whether the connection had been closed before, whether the timeout has passed, and the
 * text or the statement that is run, or nil.
 */
static VALUE connection_exchange(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 1);
    struct connection_exchange exchange = {.self = self, .body = yield, .arguments = {argc ? argv[0] : Qnil}};
    return run_exchange(&exchange);
}

// ---- transactions

static void refuse_unsendable(VALUE self, const struct connection *connection, VALUE kind, VALUE sql)
{
    if (!in_block(connection) || (NIL_P(connection->failure) && kind != commit)) return;
    rb_funcall(self, rb_intern("refuse_statement"), 1, sql);
}

/* @api private connection.check_transaction(kind, sql): raises unless the statement may be sent now. */
static VALUE check_transaction(VALUE self, VALUE kind, VALUE sql)
{
    refuse_unsendable(self, connection_of(self), kind, sql);
    return Qnil;
}

/* @api private connection.record_state -> nil. Notes that a statement which succeeded has ended the transaction. */
static VALUE record_state(VALUE self)
{
    struct connection *connection = connection_of(self);
    if (in_block(connection) && NIL_P(connection->failure) && !db_in_transaction(connection))
        RB_OBJ_WRITE(self, &connection->failure, rb_interned_str_cstr("the server ended it"));
    return Qnil;
}

/* @api private connection.checked(result, sql) -> result. Raises a server's error. */
VALUE db_connection_checked(VALUE self, VALUE result, VALUE sql)
{
    if (is_refusal(result)) return rb_funcall(self, rb_intern("raise_refusal"), 2, result, sql);
    record_state(self);
    return result;
}

// ---- statements

// Of StatementCache, whose Hash has the most recently used statement at its end.
static VALUE cached(VALUE cache, VALUE sql)
{
    VALUE statements = rb_ivar_get(cache, rb_intern("@statements")), newest = rb_ivar_get(cache, rb_intern("@newest"));
    if (!NIL_P(newest) && RTEST(rb_str_equal(sql, newest))) return rb_hash_lookup(statements, newest);
    VALUE statement = rb_hash_delete(statements, sql);
    if (NIL_P(statement)) return Qnil;
    newest = rb_str_new_frozen(sql);
    rb_ivar_set(cache, rb_intern("@newest"), newest);
    rb_hash_aset(statements, newest, statement);
    return statement;
}

static VALUE perform_new(VALUE self, VALUE sql, VALUE arguments, bool caches)
{
    const struct connection *connection = connection_of(self);
    VALUE kind = is_plain(connection, sql) ? plain : rb_funcall(connection->driver, rb_intern("kind"), 1, sql);
    refuse_unsendable(self, connection, kind, sql);
    if (kind != plain && RTEST(rb_funcall(connection->driver, rb_intern("invalidates?"), 1, kind)))
        rb_funcall(connection->cache, rb_intern("clear"), 0);
    if (caches && (kind == plain || kind == calling))
        return rb_funcall(self, rb_intern("cache_statement"), 2, sql, arguments);
    if (kind == plain && connection->operations && connection->operations->query)
        return connection->operations->query(connection->native, sql, arguments);
    return rb_funcall(connection->driver, rb_intern("query"), 2, sql, arguments);
}

static VALUE perform_statement(VALUE self, VALUE sql, VALUE arguments, VALUE watch, bool caches)
{
    const struct connection *connection = connection_of(self);
    VALUE result, prepared = caches && RB_TYPE_P(sql, T_STRING) ? cached(connection->cache, sql) : Qnil;
    if (NIL_P(prepared)) return db_connection_checked(self, perform_new(self, sql, arguments, caches), sql);
    if (!NIL_P(watch)) rb_funcall(watch, rb_intern("cached="), 1, Qtrue);
    refuse_unsendable(self, connection, plain, sql); // its kind was looked at when it was prepared
    result = connection_run(connection, prepared, arguments, may_run(connection, prepared));
    if (is_refusal(result)) result = rb_funcall(self, rb_intern("run_if_stale"), 3, sql, arguments, result);
    return db_connection_checked(self, result, sql);
}

static bool keeps_now(const struct connection *connection, bool virtual)
{
    if (virtual) return connection->caching != CACHING_NEVER;
    return connection->caching == CACHING_ALWAYS ||
           (connection->caching == CACHING_IN_TRANSACTIONS && db_in_transaction(connection));
}

/* @api private connection.perform(sql, arguments, watch, virtual) -> Result. Runs a statement, within an exchange. */
static VALUE perform(VALUE self, VALUE sql, VALUE arguments, VALUE watch, VALUE virtual)
{
    return perform_statement(self, sql, arguments, watch, keeps_now(connection_of(self), RTEST(virtual)));
}

static VALUE query_body(struct connection_exchange *exchange)
{
    return perform(exchange->self, exchange->arguments[0], exchange->arguments[1], Qnil, Qfalse);
}

/*
 * @api private connection.run_query(sql, arguments) -> Result
 *
 * Values by their names, and what is no text, go to +query_resolved+; watched statements to +query_watched+.
 */
static VALUE run_query(VALUE self, VALUE sql, VALUE arguments)
{
    long count = RARRAY_LEN(arguments);
    if (!RB_TYPE_P(sql, T_STRING) || (count && RB_TYPE_P(RARRAY_AREF(arguments, count - 1), T_HASH)))
        return rb_funcall(self, rb_intern("query_resolved"), 2, sql, arguments);
    if (watched || connection_of(self)->notifying)
        return rb_funcall(self, rb_intern("query_watched"), 2, sql, arguments);
    struct connection_exchange exchange = {.self = self, .body = query_body, .arguments = {sql, arguments}};
    return run_exchange(&exchange);
}

/*
 * @api private connection.perform_prepared(statement, prepared, arguments, watch) -> Result
 *
 * Runs a Statement, within an exchange. +prepared+: what the driver knows the statement by, if its text is of the kind
 * :plain; else nil or false.
 */
static VALUE perform_prepared(VALUE self, VALUE statement, VALUE prepared, VALUE arguments, VALUE watch)
{
    const struct connection *connection = connection_of(self);
    bool direct = RTEST(prepared) && may_run(connection, prepared);
    if (!direct) {
        prepared = rb_funcall(self, rb_intern("ready_statement"), 2, statement, watch);
    } else {
        refuse_unsendable(self, connection, plain, statement);
        if (!NIL_P(watch)) rb_funcall(watch, rb_intern("cached="), 1, Qtrue);
    }
    if (!direct || !NIL_P(watch)) direct = may_run(connection, prepared); // Ruby code has run
    VALUE result = connection_run(connection, prepared, arguments, direct);
    if (is_refusal(result)) return rb_funcall(self, rb_intern("finish_statement"), 3, statement, arguments, result);
    record_state(self);
    return result;
}

static VALUE prepared_body(struct connection_exchange *exchange)
{
    return perform_prepared(exchange->self, exchange->arguments[0], exchange->arguments[1], exchange->arguments[2],
                            Qnil);
}

/* @api private connection.run_statement(statement, prepared, arguments) -> Result. See perform_prepared. */
static VALUE run_statement(VALUE self, VALUE statement, VALUE prepared, VALUE arguments)
{
    if (watched || connection_of(self)->notifying)
        return rb_funcall(self, rb_intern("run_watched"), 3, statement, prepared, arguments);
    struct connection_exchange exchange = {
        .self = self, .body = prepared_body, .arguments = {statement, prepared, arguments}};
    return run_exchange(&exchange);
}

/* @api private connection.plain?(sql) -> true or nil. Whether it is of the kind :plain; nil: the driver has to look. */
static VALUE plain_p(VALUE self, VALUE sql)
{
    return is_plain(connection_of(self), sql) ? Qtrue : Qnil;
}

// ---- the state, for Ruby code

/* @api private connection.busy? -> true or false: whether a fiber or thread is in an exchange, or between two */
static VALUE busy_p(VALUE self)
{
    return connection_of(self)->state == IDLE ? Qfalse : Qtrue;
}

/* @api private connection.reserve: within an exchange. Nobody else may use the connection until #unreserve. */
static VALUE db_reserve(VALUE self)
{
    connection_of(self)->state = RESERVED;
    return self;
}

/* @api private connection.unreserve: ends a reservation. */
static VALUE connection_unreserve(VALUE self)
{
    connection_of(self)->state = IDLE;
    return self;
}

/* @api private connection.returned = true or false: whether nobody may use it, since its pool has it */
static VALUE set_returned(VALUE self, VALUE returned)
{
    connection_of(self)->returned = RTEST(returned);
    return returned;
}

/* @api private connection.notifying = true or false: whether Ruby code has something to do behind each exchange */
static VALUE set_notifying(VALUE self, VALUE notifying)
{
    connection_of(self)->notifying = RTEST(notifying);
    return notifying;
}

/* @api private connection.holder -> Task, Fiber, Thread or nil */
static VALUE holder(VALUE self)
{
    return connection_of(self)->holder;
}

/* @api private connection.holder = Task, Fiber, Thread or nil */
static VALUE set_holder(VALUE self, VALUE holder)
{
    return RB_OBJ_WRITE(self, &connection_of(self)->holder, holder);
}

/* @api private connection.failure -> String or nil */
static VALUE failure(VALUE self)
{
    return connection_of(self)->failure;
}

/* @api private connection.failure = String or nil */
static VALUE set_failure(VALUE self, VALUE failure)
{
    return RB_OBJ_WRITE(self, &connection_of(self)->failure, failure);
}

/* @api private Connection.watched? -> true or false: whether anybody in this process has asked to be told of
   statements */
static VALUE watched_p(VALUE klass)
{
    (void)klass;
    return watched ? Qtrue : Qfalse;
}

/* @api private Connection.watch: from now on somebody is told of statements. */
static VALUE db_watch(VALUE klass)
{
    watched = true;
    return klass;
}

void db_connection_define(VALUE db)
{
    plain = ID2SYM(rb_intern("plain"));
    calling = ID2SYM(rb_intern("calling"));
    commit = ID2SYM(rb_intern("commit"));
    VALUE connection = rb_define_class_under(db, "Connection", rb_cObject);
    rb_define_alloc_func(connection, connection_allocate);
    rb_undef_method(connection, "initialize_copy");
    rb_define_singleton_method(connection, "holder", connection_holder, 0);
    rb_define_singleton_method(connection, "watched?", watched_p, 0);
    rb_define_singleton_method(connection, "watch", db_watch, 0);
    rb_define_method(connection, "run_statement", run_statement, 3);
    rb_define_method(connection, "plain?", plain_p, 1);
    rb_define_private_method(connection, "attach", attach, -1);
    rb_define_private_method(connection, "exchange", connection_exchange, -1);
    rb_define_private_method(connection, "run_query", run_query, 2);
    rb_define_private_method(connection, "perform", perform, 4);
    rb_define_private_method(connection, "perform_prepared", perform_prepared, 4);
    rb_define_private_method(connection, "check_transaction", check_transaction, 2);
    rb_define_private_method(connection, "checked", db_connection_checked, 2);
    rb_define_private_method(connection, "record_state", record_state, 0);
    rb_define_method(connection, "running", connection_running, 0);
    rb_define_private_method(connection, "busy?", busy_p, 0);
    rb_define_private_method(connection, "reserve", db_reserve, 0);
    rb_define_private_method(connection, "unreserve", connection_unreserve, 0);
    rb_define_private_method(connection, "returned=", set_returned, 1);
    rb_define_private_method(connection, "notifying=", set_notifying, 1);
    rb_define_private_method(connection, "holder", holder, 0);
    rb_define_private_method(connection, "holder=", set_holder, 1);
    rb_define_private_method(connection, "failure", failure, 0);
    rb_define_private_method(connection, "failure=", set_failure, 1);
}
