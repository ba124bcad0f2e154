// The methods of Heddle::DB::MySQL::Protocol. Each is one exchange, or one half: `send_…` sends a request and
// `receive_…` reads the oldest outstanding reply, so that several requests can be in flight. Errors of the server are
// returned, not raised.
#include "db/mysql/protocol.h"

#include "db/connection.h"

// ER_UNKNOWN_STMT_HANDLER and ER_NEED_REPREPARE.
enum { UNKNOWN_STATEMENT = 1243, OUTDATED_STATEMENT = 1615 };

// ---- settings

/* @api private protocol.open(stream): from now on the connection uses that stream. */
static VALUE open_protocol(VALUE self, VALUE stream)
{
    db_protocol_open(&mysql_protocol_of(self)->base, stream);
    return self;
}

/* @api private protocol.configure(capabilities, encoding, local, booleans, direct, fixes): the result of the login. */
static VALUE configure(VALUE self, VALUE capabilities, VALUE encoding, VALUE local, VALUE booleans, VALUE direct,
                       VALUE fixes)
{
    struct mysql_protocol *protocol = mysql_protocol_of(self);
    protocol->capabilities = NUM2ULL(capabilities);
    protocol->encoding = rb_to_encoding(encoding);
    protocol->local = RTEST(local);
    protocol->booleans = RTEST(booleans);
    protocol->direct = RTEST(direct);
    protocol->fixes = RTEST(fixes);
    return self;
}

/* @api private protocol.local_times = true or false: whether a DATETIME is in the time zone of this process, or in UTC.
 * */
static VALUE set_local_times(VALUE self, VALUE local)
{
    mysql_protocol_of(self)->local = RTEST(local);
    return local;
}

/* @api private protocol.backslash_escapes? -> true or false. Whether a backslash is special in strings of SQL. */
static VALUE backslash_escapes_p(VALUE self)
{
    return mysql_protocol_of(self)->status & MYSQL_NO_BACKSLASH_ESCAPES ? Qfalse : Qtrue;
}

static bool mysql_in_transaction(VALUE self)
{
    return (mysql_protocol_of(self)->status & MYSQL_IN_TRANSACTION) && !db_protocol_is_closed(self);
}

/*
 * call-seq: protocol.in_transaction? -> true or false
 *
 * Returns whether a transaction is open, according to the server's last reply; false for a closed connection.
 */
static VALUE in_transaction_p(VALUE self)
{
    return mysql_in_transaction(self) ? Qtrue : Qfalse;
}

/*
 * call-seq: protocol.more_rows? -> true or false
 *
 * Returns whether the cursor that was read last has more rows.
 */
static VALUE more_rows_p(VALUE self)
{
    return mysql_protocol_of(self)->status & MYSQL_LAST_ROW_SENT ? Qfalse : Qtrue;
}

/*
 * call-seq: protocol.cursor? -> true or false
 *
 * Returns whether the last execution has left a cursor.
 */
static VALUE cursor_p(VALUE self)
{
    return mysql_protocol_of(self)->status & MYSQL_CURSOR_EXISTS ? Qtrue : Qfalse;
}

enum { SESSION_STATUS = MYSQL_AUTOCOMMIT | MYSQL_NO_BACKSLASH_ESCAPES };

/* @api private protocol.settle: notes the session's current state as the one that every user expects. */
static VALUE settle(VALUE self)
{
    struct mysql_protocol *protocol = mysql_protocol_of(self);
    protocol->settled = protocol->status & SESSION_STATUS;
    protocol->changed = false;
    return Qnil;
}

bool mysql_session_changed(const struct mysql_protocol *protocol)
{
    return protocol->changed || (protocol->status & SESSION_STATUS) != protocol->settled;
}

/*
 * call-seq: protocol.changed? -> true or false
 *
 * Returns whether the session has changed since #settle, as far as the server reports.
 */
static VALUE changed_p(VALUE self)
{
    return mysql_session_changed(mysql_protocol_of(self)) ? Qtrue : Qfalse;
}

/*
 * @api private protocol.forget_statements: the server has closed all statements. It is unknown whether the server still
 *   accepts one of them as the last prepared statement, so the next prepare is sent alone.
 */
static VALUE mysql_forget_statements(VALUE self)
{
    struct mysql_protocol *protocol = mysql_protocol_of(self);
    db_protocol_forget_statements(&protocol->base);
    protocol->last = 0;
    protocol->last_open = true;
    return Qnil;
}

/*
 * @api private protocol.refused -> String or nil. The SQL that the last exchange has sent together with its execution,
 * if the server refused it: the server's diagnostics are then those of the execution.
 */
static VALUE refused(VALUE self)
{
    return mysql_protocol_of(self)->refused;
}

/* @api private protocol.refused = sql, for an exchange that leaves the diagnostics alone. */
static VALUE set_refused(VALUE self, VALUE sql)
{
    return mysql_protocol_of(self)->refused = sql;
}

// ---- requests

static VALUE send_query_body(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    exchange->unsent = true;
    VALUE sql = mysql_sql_text(protocol, exchange->arguments[0]);
    exchange->unsent = false;
    mysql_request(protocol, MYSQL_QUERY, RSTRING_PTR(sql), (size_t)RSTRING_LEN(sql));
    RB_GC_GUARD(sql);
    return Qnil;
}

/* @api private protocol.send_query(sql). receive_text reads the reply. */
static VALUE send_query(VALUE self, VALUE sql)
{
    return mysql_exchange_with(self, send_query_body, sql, Qnil);
}

static VALUE send_command_body(struct db_exchange *exchange)
{
    VALUE payload = exchange->arguments[1];
    mysql_request(exchange->protocol, (uint8_t)NUM2UINT(exchange->arguments[0]), RSTRING_PTR(payload),
                  (size_t)RSTRING_LEN(payload));
    RB_GC_GUARD(payload);
    return Qnil;
}

/* @api private protocol.send_command(byte, payload). receive_text reads the reply. */
static VALUE send_command(VALUE self, VALUE command, VALUE payload)
{
    StringValue(payload);
    return mysql_exchange_with(self, send_command_body, command, payload);
}

static VALUE send_prepare_body(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    exchange->unsent = true;
    VALUE sql = mysql_sql_text(protocol, exchange->arguments[0]);
    exchange->unsent = false;
    mysql_request(protocol, MYSQL_PREPARE, RSTRING_PTR(sql), (size_t)RSTRING_LEN(sql));
    RB_GC_GUARD(sql);
    return Qnil;
}

/* @api private protocol.send_prepare(sql). receive_prepared reads the reply. */
static VALUE send_prepare(VALUE self, VALUE sql)
{
    return mysql_exchange_with(self, send_prepare_body, sql, Qnil);
}

// A value that cannot be bound is the caller's mistake: nothing was sent yet, and the connection stays usable.
static void build(struct db_exchange *exchange, uint32_t id, bool cursor)
{
    Check_Type(exchange->arguments[1], T_ARRAY);
    exchange->unsent = true;
    struct mysql_protocol *protocol = exchange->protocol;
    mysql_build_execute(protocol, &protocol->request, id, exchange->arguments[1], cursor);
    exchange->unsent = false;
}

// Prepares the statement again: for values of other types, or because the server does not have it any more. Returns 0,
// or the error.
static VALUE prepare_again(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    const struct mysql_statement *statement = mysql_statement_of(exchange->arguments[0]);
    mysql_request(protocol, MYSQL_PREPARE, RSTRING_PTR(statement->sql), (size_t)RSTRING_LEN(statement->sql));
    struct mysql_prepared prepared;
    VALUE columns;
    VALUE error = mysql_read_prepared(protocol, &prepared, &columns, NULL);
    if (!error) mysql_statement_add(protocol, exchange->arguments[0], &prepared, columns);
    return error;
}

// Returns true, or an error; or false if the statement has to be prepared again, and replies are outstanding.
static VALUE send_execute_body(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    VALUE prepared = exchange->arguments[0], arguments = exchange->arguments[1];
    struct mysql_statement *statement = mysql_statement_of(prepared);
    Check_Type(arguments, T_ARRAY);
    for (;;) {
        exchange->unsent = true;
        if (RARRAY_LEN(arguments) != statement->parameters)
            rb_raise(rb_eArgError, "wrong number of values for the statement (given %ld, expected %u)",
                     RARRAY_LEN(arguments), statement->parameters);
        build(exchange, 0, exchange->number);
        if (mysql_statement_choose(protocol, statement)) break;
        if (protocol->base.owed) return Qfalse;
        VALUE error = prepare_again(exchange);
        if (error) return error;
    }
    mysql_request_built(protocol, &protocol->request);
    RB_GC_GUARD(prepared);
    return Qtrue;
}

/*
 * @api private protocol.send_execute(prepared, arguments, cursor) -> true, false or an error. receive_result reads the
 * reply. false, with nothing sent: the server has to be asked something first, and replies are outstanding.
 */
static VALUE send_execute(VALUE self, VALUE prepared, VALUE arguments, VALUE cursor)
{
    struct db_exchange exchange = {
        .self = self, .body = send_execute_body, .arguments = {prepared, arguments}, .number = RTEST(cursor)};
    return mysql_exchange(&exchange);
}

// Sends a prepare and its execution together. Returns false if that is not possible, or not safe.
static bool ask_new(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    exchange->unsent = true;
    VALUE sql = exchange->arguments[0] = mysql_sql_text(protocol, exchange->arguments[0]);
    if (!protocol->direct || !mysql_sql_has_parameters(sql, exchange->arguments[1])) return false;
    build(exchange, MYSQL_LAST_STATEMENT, exchange->number);
    mysql_queue_pending_closes(protocol);
    bool safe = !protocol->last_open && !protocol->base.owed && RSTRING_LEN(sql) + 1 < MYSQL_LARGEST_PACKET;
    if (safe) mysql_request_new(protocol, sql, &protocol->request);
    return safe;
}

static VALUE send_number_body(struct db_exchange *exchange)
{
    uint8_t bytes[8];
    const struct mysql_statement *statement = mysql_statement_of(exchange->arguments[0]);
    uint32_t rows = exchange->number;
    mysql_put_little(bytes, statement->forms[0].id, 4); // of the last execution
    mysql_put_little(bytes + 4, rows, 4);
    mysql_request(exchange->protocol, rows ? MYSQL_FETCH : MYSQL_RESET, bytes, rows ? 8 : 4);
    return Qnil;
}

/* @api private protocol.send_fetch(prepared, rows). receive_fetched reads the reply. */
static VALUE send_fetch(VALUE self, VALUE prepared, VALUE rows)
{
    struct db_exchange exchange = {
        .self = self, .body = send_number_body, .arguments = {prepared}, .number = NUM2UINT(rows)};
    return mysql_exchange(&exchange);
}

// ---- replies

static VALUE receive_text_body(struct db_exchange *exchange)
{
    return mysql_read_result(exchange->protocol, NULL, Qnil, true, false);
}

/* @api private protocol.receive_text -> Heddle::DB::Result or an error */
static VALUE receive_text(VALUE self)
{
    return mysql_exchange_with(self, receive_text_body, Qnil, Qnil);
}

static VALUE receive_prepared_body(struct db_exchange *exchange)
{
    struct mysql_prepared prepared;
    VALUE columns, types;
    VALUE error = mysql_read_prepared(exchange->protocol, &prepared, &columns, &types);
    return error ? error : mysql_prepared_new(exchange->protocol, &prepared, columns, types, exchange->arguments[0]);
}

/* @api private protocol.receive_prepared(sql) -> Prepared or an error */
static VALUE receive_prepared(VALUE self, VALUE sql)
{
    return mysql_exchange_with(self, receive_prepared_body, mysql_sql_text(mysql_protocol_of(self), sql), Qnil);
}

static VALUE receive_result_body(struct db_exchange *exchange)
{
    struct mysql_statement *statement = mysql_statement_of(exchange->arguments[0]);
    VALUE result =
        mysql_read_result(exchange->protocol, &statement->columns, exchange->arguments[0], false, statement->writes);
    RB_GC_GUARD(exchange->arguments[0]);
    return result;
}

/* @api private protocol.receive_result(prepared) -> Heddle::DB::Result or an error */
static VALUE receive_result(VALUE self, VALUE prepared)
{
    return mysql_exchange_with(self, receive_result_body, prepared, Qnil);
}

static VALUE mysql_run_new_body(struct db_exchange *exchange)
{
    if (!ask_new(exchange)) return Qnil;
    return mysql_read_new(exchange->protocol, exchange->arguments[0], RTEST(exchange->arguments[2]));
}

/*
 * @api private protocol.run_new(sql, arguments, keep, cursor) -> Result or an error. With keep, which keeps the
 * statement, returns [Prepared, Result or error] or an error. Returns nil, with nothing sent, if that would take two
 * round trips.
 */
static VALUE run_new(VALUE self, VALUE sql, VALUE arguments, VALUE keep, VALUE cursor)
{
    struct db_exchange exchange = {
        .self = self, .body = mysql_run_new_body, .arguments = {sql, arguments, keep}, .number = RTEST(cursor)};
    return mysql_exchange(&exchange);
}

// Whether the server does not have the statement that it was asked to run. The number of the error alone may come from
// the statement's own body (a procedure that runs another statement): the server is asked for this one.
static bool is_lost(struct mysql_protocol *protocol, const struct mysql_statement *statement)
{
    uint8_t bytes[4];
    mysql_put_little(bytes, statement->forms[0].id, sizeof(bytes));
    mysql_request(protocol, MYSQL_RESET, bytes, sizeof(bytes));
    VALUE answer = mysql_read_result(protocol, NULL, Qnil, true, false);
    return !db_is_result(answer) && mysql_error_code(answer) == UNKNOWN_STATEMENT;
}

static VALUE run_once(struct db_exchange *exchange)
{
    VALUE sent = send_execute_body(exchange);
    if (sent == Qfalse) rb_raise(rb_eRuntimeError, "replies are outstanding");
    return sent == Qtrue ? receive_result_body(exchange) : sent;
}

// A statement that the server does not have was not begun: it is prepared anew, and runs again. In a transaction, which
// the server has lost with it, only the next execution prepares it; and so after an error that calls it outdated, which
// may come from its own body.
static VALUE mysql_run_body(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    struct mysql_statement *statement = mysql_statement_of(exchange->arguments[0]);
    VALUE result = run_once(exchange);
    if (db_is_result(result) || !statement->count) return result;
    int code = mysql_error_code(result);
    bool lost = code == UNKNOWN_STATEMENT && is_lost(protocol, statement);
    if (!lost && code != OUTDATED_STATEMENT) return result;
    if (lost) {
        mysql_statement_forget(statement);
    } else {
        mysql_statement_close(statement);
    }
    if (lost && !(protocol->status & MYSQL_IN_TRANSACTION)) result = run_once(exchange);
    RB_GC_GUARD(exchange->arguments[0]);
    return result;
}

/* @api private protocol.run(prepared, arguments) -> Result or an error */
static VALUE mysql_run(VALUE self, VALUE prepared, VALUE arguments)
{
    return mysql_exchange_with(self, mysql_run_body, prepared, arguments);
}

static VALUE run_text_body(struct db_exchange *exchange)
{
    send_query_body(exchange);
    return receive_text_body(exchange);
}

/* @api private protocol.run_text(sql) -> Result or an error */
static VALUE run_text(VALUE self, VALUE sql)
{
    return mysql_exchange_with(self, run_text_body, sql, Qnil);
}

static VALUE receive_fetched_body(struct db_exchange *exchange)
{
    VALUE rows = mysql_read_fetched(exchange->protocol, exchange->arguments[0]);
    RB_GC_GUARD(exchange->arguments[0]);
    return rows;
}

/* @api private protocol.receive_fetched(columns) -> Array or an error */
static VALUE receive_fetched(VALUE self, VALUE columns)
{
    mysql_columns_of(columns);
    return mysql_exchange_with(self, receive_fetched_body, columns, Qnil);
}

// ---- closes

/*
 * call-seq: protocol.close_later(prepared)
 *
 * The statement's close is piggybacked on the next request.
 */
static VALUE close_later(VALUE self, VALUE prepared)
{
    struct mysql_protocol *protocol = mysql_protocol_of(self);
    struct mysql_statement *statement = mysql_statement_of(prepared);
    if (!statement->open) return Qnil;
    statement->open = false;
    if (db_protocol_forked(&protocol->base)) return Qnil; // the parent closes it
    mysql_statement_close(statement);
    if (protocol->base.state != DB_PROTOCOL_IN_EXCHANGE) mysql_flush_when_idle(self);
    RB_GC_GUARD(prepared);
    return Qnil;
}

static bool owns(VALUE self, VALUE prepared)
{
    return mysql_statement_of(prepared)->pending_closes == mysql_protocol_of(self)->base.pending_closes;
}

/* call-seq: protocol.owns?(prepared) -> true or false */
static VALUE owns_p(VALUE self, VALUE prepared)
{
    return owns(self, prepared) ? Qtrue : Qfalse;
}

static VALUE flush_closes_body(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    mysql_queue_pending_closes(protocol);
    stream_flush(stream_of(protocol->base.stream));
    protocol->base.closes = 0;
    return Qnil;
}

/*
 * call-seq: protocol.flush_closes
 *
 * Sends the pending closes in a packet of their own.
 */
static VALUE flush_closes(VALUE self)
{
    struct db_exchange exchange = {.self = self, .body = flush_closes_body, .unasked = true};
    return mysql_exchange(&exchange);
}

// ---- the class

/* @api private Protocol.final?(error) -> true or false. Returns whether the server closes the connection after this
   error. */
static VALUE final_p(VALUE klass, VALUE error)
{
    (void)klass;
    return mysql_error_is_final(error) ? Qtrue : Qfalse;
}

/* @api private Protocol.sanitize(text) -> String. Shows control characters as \\xNN. */
static VALUE sanitize(VALUE klass, VALUE text)
{
    (void)klass;
    StringValue(text);
    VALUE string = server_text(RSTRING_PTR(text), (size_t)RSTRING_LEN(text), rb_utf8_encoding());
    RB_GC_GUARD(text);
    return string;
}

/* @api private Protocol.load_classes: call it once the classes of values are loaded. */
static VALUE mysql_load_classes(VALUE klass)
{
    (void)klass;
    mysql_parameters_load_classes();
    mysql_values_load_classes();
    mysql_results_load_classes();
    return Qnil;
}

// The driver makes room on a server that has none for another statement, and runs the statement, which was not begun.
static VALUE run_with_room(VALUE self, VALUE prepared, VALUE arguments)
{
    VALUE result = mysql_run(self, prepared, arguments);
    return mysql_wants_room(result) ? Qundef : result;
}

struct db_operations mysql_operations = {.is_plain = mysql_is_plain,
                                         .in_transaction = mysql_in_transaction,
                                         .is_closed = db_protocol_is_closed,
                                         .is_forked = db_protocol_is_forked,
                                         .may_run = owns,
                                         .run = run_with_room};

void mysql_commands_define(void)
{
    VALUE protocol = mysql_cProtocol;
    db_operations_of(protocol, &mysql_operations);
    rb_define_singleton_method(protocol, "final?", final_p, 1);
    rb_define_singleton_method(protocol, "sanitize", sanitize, 1);
    rb_define_singleton_method(protocol, "load_classes", mysql_load_classes, 0);
    rb_define_method(protocol, "open", open_protocol, 1);
    rb_define_method(protocol, "configure", configure, 6);
    rb_define_method(protocol, "refused", refused, 0);
    rb_define_method(protocol, "refused=", set_refused, 1);
    rb_define_method(protocol, "local_times=", set_local_times, 1);
    rb_define_method(protocol, "backslash_escapes?", backslash_escapes_p, 0);
    rb_define_method(protocol, "in_transaction?", in_transaction_p, 0);
    rb_define_method(protocol, "more_rows?", more_rows_p, 0);
    rb_define_method(protocol, "cursor?", cursor_p, 0);
    rb_define_method(protocol, "settle", settle, 0);
    rb_define_method(protocol, "changed?", changed_p, 0);
    rb_define_method(protocol, "forget_statements", mysql_forget_statements, 0);
    rb_define_method(protocol, "send_query", send_query, 1);
    rb_define_method(protocol, "send_command", send_command, 2);
    rb_define_method(protocol, "send_prepare", send_prepare, 1);
    rb_define_method(protocol, "send_execute", send_execute, 3);
    rb_define_method(protocol, "send_fetch", send_fetch, 2);
    rb_define_method(protocol, "receive_text", receive_text, 0);
    rb_define_method(protocol, "receive_prepared", receive_prepared, 1);
    rb_define_method(protocol, "receive_result", receive_result, 1);
    rb_define_method(protocol, "receive_fetched", receive_fetched, 1);
    rb_define_method(protocol, "run_new", run_new, 4);
    rb_define_method(protocol, "run", mysql_run, 2);
    rb_define_method(protocol, "run_text", run_text, 1);
    rb_define_method(protocol, "close_later", close_later, 1);
    rb_define_method(protocol, "owns?", owns_p, 1);
    rb_define_method(protocol, "flush_closes", flush_closes, 0);
}
