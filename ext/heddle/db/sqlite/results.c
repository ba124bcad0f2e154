// Runs statements: whole results, and rows of a statement that stays open.
#include "db/sqlite/database.h"

#include "db/connection.h"
#include "db/result.h"

// Rows that are appended to the others at once.
enum { ROWS_GATHERED = 64 };

static VALUE cResult, eStatementClosed;

// Up to `most` rows, or all for -1. Returns SQLite's last answer.
static int take_rows(struct sqlite_database *database, struct sqlite_statement *statement, VALUE rows, long most)
{
    VALUE gathered[ROWS_GATHERED]; // on the stack, where the GC finds them
    long count = 0, taken = 0;
    int code = SQLITE_ROW;
    while (taken != most && (code = sqlite_step(database, statement)) == SQLITE_ROW) {
        if (taken++ == 0) sqlite_statement_refresh(statement);
        gathered[count++] = sqlite_row(database, statement);
        if (count == ROWS_GATHERED) {
            rb_ary_cat(rows, gathered, count);
            count = 0;
        }
    }
    if (count) rb_ary_cat(rows, gathered, count);
    return code;
}

// An upsert that updates, and a table without row numbers, leave the number of an earlier statement. Of a virtual table
// SQLite tells no rows.
static void note_first_id(const struct sqlite_database *database, VALUE result, int64_t last_before)
{
    int64_t last = sqlite_api.last_insert_rowid(database->core->db);
    if (!database->inserted && last == last_before) return;
    db_result_set_last_id(result, LL2NUM(database->inserted ? database->first_id : last));
}

// Runs a statement that is not open, to its end. Returns a result or an error.
static VALUE sqlite_run(struct sqlite_call *call, struct sqlite_statement *statement, VALUE arguments)
{
    struct sqlite_database *database = call->database;
    call->statement = statement;
    if (!statement->at) {
        if (RARRAY_LEN(arguments)) rb_raise(rb_eArgError, "there are arguments, but no statement in this SQL");
        return db_result_of(cResult, Qnil, Qnil, INT2FIX(0));
    }
    sqlite_bind(database, statement, arguments);
    sqlite3 *db = database->core->db;
    int before = sqlite_api.total_changes(db);
    int64_t last_before = sqlite_api.last_insert_rowid(db);
    database->target = statement->target;
    database->inserted = false;
    VALUE rows = rb_ary_new();
    int code = take_rows(database, statement, rows, -1);
    if (code != SQLITE_DONE) return sqlite_error_value(database, code);
    // changes() still tells of an earlier statement where this one has changed nothing.
    int affected = sqlite_api.total_changes(db) == before ? 0 : sqlite_api.changes(db);
    sqlite_statement_refresh(statement);
    VALUE description = statement->description;
    VALUE result = db_result_of(cResult, description, NIL_P(description) ? Qnil : rows, INT2NUM(affected));
    if (statement->target && affected) note_first_id(database, result, last_before);
    return result;
}

static struct sqlite_statement *own(struct sqlite_call *call, VALUE prepared)
{
    struct sqlite_statement *statement = sqlite_statement_of(prepared);
    if (statement->database != call->self) rb_raise(rb_eRuntimeError, "this statement is not one of this connection");
    return statement;
}

static struct sqlite_statement *usable(struct sqlite_call *call, VALUE prepared)
{
    struct sqlite_statement *statement = own(call, prepared);
    if (statement->closed || statement->doomed)
        rb_raise(eStatementClosed, "this statement was closed by another thread, and was not run");
    return statement;
}

static VALUE sqlite_run_body(struct sqlite_call *call)
{
    struct sqlite_statement *statement = usable(call, call->arguments[0]);
    if (statement->open) rb_raise(rb_eRuntimeError, "the rows of this statement are still being read");
    return sqlite_run(call, statement, call->arguments[1]);
}

/*
 * call-seq: database.run(prepared, arguments) -> Result or error
 *
 * Runs the statement to its end and resets it: it holds no lock afterwards.
 */
static VALUE database_run(VALUE self, VALUE prepared, VALUE arguments)
{
    struct sqlite_call call = {
        .self = self, .body = sqlite_run_body, .arguments = {prepared, arguments}, .lets_others_in = true};
    return sqlite_call(&call);
}

static VALUE sqlite_run_new_body(struct sqlite_call *call)
{
    VALUE prepared = sqlite_prepare(call->self, call->arguments[0], 0);
    if (rb_obj_is_kind_of(prepared, rb_eException)) return rb_assoc_new(Qnil, prepared);
    struct sqlite_statement *statement = sqlite_statement_of(prepared);
    if (statement->tail) return rb_assoc_new(prepared, Qnil);
    VALUE result = sqlite_run(call, statement, call->arguments[1]);
    return rb_assoc_new(statement->at ? prepared : Qnil, result);
}

/*
 * call-seq: database.run_new(sql, arguments) -> [Prepared or nil, Result or error or nil]
 *
 * Prepares and runs a statement, which stays prepared until the caller releases it. Runs nothing (the result is nil)
 * when another one follows it.
 */
static VALUE database_run_new(VALUE self, VALUE sql, VALUE arguments)
{
    struct sqlite_call call = {.self = self, .body = sqlite_run_new_body, .arguments = {sqlite_sql(sql), arguments}};
    VALUE result = sqlite_call(&call);
    RB_GC_GUARD(call.arguments[0]);
    return result;
}

static VALUE open_body(struct sqlite_call *call)
{
    struct sqlite_statement *statement = usable(call, call->arguments[0]);
    call->statement = statement;
    if (!statement->at) return Qnil;
    sqlite_bind(call->database, statement, call->arguments[1]);
    statement->open = call->keeps_open = true;
    return Qnil;
}

/*
 * call-seq: database.open_rows(prepared, arguments) -> nil
 *
 * Binds the arguments; fetch_rows runs the statement.
 */
static VALUE database_open_rows(VALUE self, VALUE prepared, VALUE arguments)
{
    struct sqlite_call call = {.self = self, .body = open_body, .arguments = {prepared, arguments}};
    return sqlite_call(&call);
}

static VALUE fetch_body(struct sqlite_call *call)
{
    struct sqlite_statement *statement = own(call, call->arguments[0]);
    call->statement = statement;
    VALUE rows = rb_ary_new();
    if (!statement->at || !statement->open || statement->doomed) return rows;
    // A statement that writes has written everything at its first row, and is committed behind its last one: that may
    // wait or fail, which only a step tells.
    int code = take_rows(call->database, statement, rows, statement->reads ? NUM2LONG(call->arguments[1]) : -1);
    if (code != SQLITE_ROW && code != SQLITE_DONE) return sqlite_error_value(call->database, code);
    call->keeps_open = code == SQLITE_ROW;
    return rows;
}

/*
 * call-seq: database.fetch_rows(prepared, count) -> Array or error
 *
 * The next rows, at most +count+, but all rows of a statement that writes; an empty Array at the end. The statement
 * keeps its place, and its read lock, until its last row was fetched or until it is released.
 */
static VALUE database_fetch_rows(VALUE self, VALUE prepared, VALUE count)
{
    struct sqlite_call call = {.self = self, .body = fetch_body, .arguments = {prepared, count}};
    return sqlite_call(&call);
}

static bool may_run(VALUE self, VALUE prepared)
{
    return sqlite_at_ease(sqlite_database_of(self)) && sqlite_owns(self, prepared);
}

static struct db_operations operations = {.is_plain = sqlite_is_plain,
                                          .in_transaction = sqlite_in_transaction,
                                          .is_closed = sqlite_is_closed,
                                          .is_forked = sqlite_is_forked,
                                          .may_run = may_run,
                                          .run = database_run};

void sqlite_results_define(void)
{
    db_operations_of(sqlite_cDatabase, &operations);
    rb_define_method(sqlite_cDatabase, "run", database_run, 2);
    rb_define_method(sqlite_cDatabase, "run_new", database_run_new, 2);
    rb_define_method(sqlite_cDatabase, "open_rows", database_open_rows, 2);
    rb_define_method(sqlite_cDatabase, "fetch_rows", database_fetch_rows, 2);
}

void sqlite_results_load_classes(void)
{
    db_result_load_classes();
    cResult = db_class("Heddle::DB::SQLite::Result");
    eStatementClosed = db_class("Heddle::DB::StatementClosed");
}
