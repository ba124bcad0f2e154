// The methods of Heddle::DB::PostgreSQL::Protocol that run statements. Each is one exchange, or a half of one: `send_…`
// asks and `receive` reads the oldest answer that is owed, so that several questions can travel together. Refusals of
// the server are returned, not raised.
#include "db/postgresql/commands.h"

#include "db/postgresql/session.h"

#include <string.h>

// ---- asking

static void check_count(uint32_t parameters, size_t arguments)
{
    if (arguments == parameters) return;
    rb_raise(rb_eArgError,
             "wrong number of values for the statement (given %zu, expected %u); an operator's ? is written ??",
             arguments, parameters);
}

enum { UNNAMED = 0 };  // the statement without a name
enum { ALL_ROWS = 0 }; // of a portal, without a limit

static const struct pg_span no_name = {(const uint8_t *)"", 0};

static void put_execution(struct postgresql_protocol *protocol, struct pg_span portal, uint32_t rows)
{
    postgresql_check(pg_put_execute(&protocol->request, portal, rows));
    postgresql_check(pg_put_sync(&protocol->request));
}

VALUE postgresql_make_ready(struct postgresql_protocol *protocol, VALUE sql, VALUE arguments,
                            struct postgresql_arguments *ready)
{
    uint32_t parameters;
    postgresql_arguments(protocol, arguments, ready);
    sql = postgresql_native_sql(protocol, sql, &parameters); // behind Ruby code, which may change the caller's String
    check_count(parameters, ready->count);
    return sql;
}

void postgresql_put_ready(struct postgresql_protocol *protocol, VALUE sql, const struct postgresql_arguments *ready,
                          VALUE name, uint32_t rows)
{
    struct pg_span portal = NIL_P(name) ? no_name : postgresql_span_of(name);
    postgresql_check(pg_put_parse(&protocol->request, no_name, postgresql_span_of(sql), ready->types, ready->count));
    postgresql_put_bind(protocol, portal, no_name, ready, NULL);
    postgresql_check(pg_put_describe(&protocol->request, PG_PORTAL, portal));
    postgresql_check(pg_put_execute(&protocol->request, portal, rows));
    RB_GC_GUARD(sql);
    RB_GC_GUARD(name);
}

void postgresql_put_new(struct postgresql_protocol *protocol, VALUE sql, VALUE arguments, VALUE name, uint32_t rows)
{
    struct postgresql_arguments ready;
    sql = postgresql_make_ready(protocol, sql, arguments, &ready);
    postgresql_put_ready(protocol, sql, &ready, name, rows);
    RB_GC_GUARD(ready.holder);
}

// Everything that may raise for the caller's fault comes before the first byte is sent.
static VALUE send_new_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    exchange->unsent = true;
    postgresql_put_statement_timeout(protocol, postgresql_takes_statement_timeout(protocol, exchange->arguments[0]));
    postgresql_put_new(protocol, exchange->arguments[0], exchange->arguments[1], exchange->arguments[2],
                       exchange->number);
    postgresql_check(pg_put_sync(&protocol->request));
    exchange->unsent = false;
    postgresql_send(protocol, 1);
    return Qnil;
}

/* @api private protocol.send_new(sql, arguments): answered by receive. */
static VALUE send_new(VALUE self, VALUE sql, VALUE arguments)
{
    struct db_exchange exchange = {.self = self, .body = send_new_body, .arguments = {sql, arguments, Qnil}};
    return postgresql_exchange(&exchange);
}

static VALUE receive_body(struct db_exchange *exchange)
{
    return postgresql_read_result(exchange->protocol, NULL, Qnil, Qnil);
}

/* @api private protocol.receive -> Heddle::DB::Result or an error */
static VALUE receive(VALUE self)
{
    return postgresql_exchange_with(self, receive_body, Qnil, Qnil);
}

static VALUE parameter_types_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    exchange->unsent = true;
    struct postgresql_arguments ready;
    VALUE sql = postgresql_make_ready(protocol, exchange->arguments[0], exchange->arguments[1], &ready);
    VALUE prepared = postgresql_prepared_new(protocol, sql, ready.types, ready.count);
    struct postgresql_statement *statement = postgresql_statement_of(prepared);
    statement->id = UNNAMED;
    postgresql_check(pg_put_parse(&protocol->request, no_name, postgresql_span_of(sql), ready.types, ready.count));
    postgresql_check(pg_put_describe(&protocol->request, PG_STATEMENT, no_name));
    postgresql_check(pg_put_sync(&protocol->request));
    exchange->unsent = false;
    postgresql_ask(protocol);
    RB_GC_GUARD(ready.holder);
    VALUE result = postgresql_read_result(protocol, &statement->columns, prepared, prepared);
    statement->open = false; // the next request replaces it
    return RTEST(rb_obj_is_kind_of(result, rb_eException)) ? result : postgresql_statement_types(prepared);
}

/* @api private protocol.parameter_types(sql, arguments) -> Array of Integer, or an error. OIDs of the types that the
 * server takes the statement's parameters for. Nothing is executed. */
static VALUE parameter_types(VALUE self, VALUE sql, VALUE arguments)
{
    return postgresql_exchange_with(self, parameter_types_body, sql, arguments);
}

static VALUE postgresql_run_new_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    db_protocol_check_answered(&protocol->base);
    send_new_body(exchange);
    return receive_body(exchange);
}

static VALUE unless_undone(VALUE self, VALUE sql, VALUE result)
{
    if (!postgresql_protocol_of(self)->rolled_back || RTEST(rb_obj_is_kind_of(result, rb_eException))) return result;
    VALUE error = postgresql_undone(postgresql_protocol_of(self), sql);
    if (!NIL_P(error)) rb_exc_raise(error);
    return result;
}

/* @api private protocol.run_new(sql, arguments) -> Result or an error. The statement is not kept. Raises
 * TransactionError for a commit that the server has answered with a rollback. */
static VALUE run_new(VALUE self, VALUE sql, VALUE arguments)
{
    arguments = postgresql_settled(self, sql, arguments, Qnil);
    if (!RB_TYPE_P(arguments, T_ARRAY)) return arguments;
    struct db_exchange exchange = {.self = self, .body = postgresql_run_new_body, .arguments = {sql, arguments, Qnil}};
    return unless_undone(self, sql, postgresql_exchange(&exchange));
}

struct own_query {
    VALUE self, sql, arguments;
    bool undecoded; // as it was before
};

static VALUE run_undecoded(VALUE argument)
{
    const struct own_query *query = (const struct own_query *)argument;
    postgresql_protocol_of(query->self)->undecoded = true;
    return run_new(query->self, query->sql, query->arguments);
}

static VALUE decode_as_before(VALUE argument)
{
    const struct own_query *query = (const struct own_query *)argument;
    postgresql_protocol_of(query->self)->undecoded = query->undecoded;
    return Qnil;
}

/* @api private protocol.run_own(sql, arguments) -> the same as run_new. For the driver's own queries: what programs
 * registered for types (PostgreSQL.register_type) is for their values. */
static VALUE run_own(VALUE self, VALUE sql, VALUE arguments)
{
    struct own_query query = {self, sql, arguments, postgresql_protocol_of(self)->undecoded};
    return rb_ensure(run_undecoded, (VALUE)&query, decode_as_before, (VALUE)&query);
}

/* @api private protocol.open_portal(name, sql, arguments, rows) -> Result or an error: the first rows, at most so many.
 * */
static VALUE open_portal(VALUE self, VALUE name, VALUE sql, VALUE arguments, VALUE rows)
{
    StringValue(name);
    arguments = postgresql_settled(self, sql, arguments, Qnil);
    if (!RB_TYPE_P(arguments, T_ARRAY)) return arguments;
    struct db_exchange exchange = {
        .self = self, .body = postgresql_run_new_body, .arguments = {sql, arguments, name}, .number = NUM2UINT(rows)};
    return postgresql_exchange(&exchange);
}

static VALUE fetch_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    postgresql_put_statement_timeout(protocol, true);
    put_execution(protocol, postgresql_span_of(exchange->arguments[0]), exchange->number);
    postgresql_ask(protocol);
    return postgresql_read_result(protocol, &exchange->arguments[1], Qnil, Qnil);
}

/* @api private protocol.fetch(name, columns, rows) -> Result or an error: the next rows of a portal, at most so many.
 * */
static VALUE fetch(VALUE self, VALUE name, VALUE columns, VALUE rows)
{
    StringValue(name);
    postgresql_columns_of(columns);
    struct db_exchange exchange = {
        .self = self, .body = fetch_body, .arguments = {name, columns}, .number = NUM2UINT(rows)};
    return postgresql_exchange(&exchange);
}

// ---- prepared statements

// Parse, of the statement's own text, and what tells about its parameters and columns.
static void put_prepare(struct postgresql_protocol *protocol, VALUE prepared)
{
    const struct postgresql_statement *statement = postgresql_statement_of(prepared);
    struct postgresql_name memory;
    struct pg_span name = postgresql_name_of(protocol, statement->id, &memory);
    struct pg_span sql = postgresql_span_of(statement->sql);
    postgresql_check(pg_put_parse(&protocol->request, name, sql, statement->declared, statement->count));
    postgresql_check(pg_put_describe(&protocol->request, PG_STATEMENT, name));
    protocol->preparing = prepared;
}

static void put_run(struct postgresql_protocol *protocol, VALUE prepared, const struct postgresql_arguments *ready,
                    bool known)
{
    const struct postgresql_statement *statement = postgresql_statement_of(prepared);
    struct postgresql_name memory;
    postgresql_put_bind(protocol, no_name, postgresql_name_of(protocol, statement->id, &memory), ready,
                        known ? statement->types : NULL);
    put_execution(protocol, no_name, ALL_ROWS);
}

static VALUE read_prepared(struct db_exchange *exchange, VALUE prepared)
{
    VALUE result =
        postgresql_read_result(exchange->protocol, &postgresql_statement_of(prepared)->columns, prepared, prepared);
    RB_GC_GUARD(prepared);
    return result;
}

static void note_timeout(struct postgresql_protocol *protocol, VALUE prepared, VALUE sql)
{
    postgresql_statement_of(prepared)->takes_timeout = postgresql_takes_statement_timeout(protocol, sql);
}

static VALUE run_named_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    exchange->unsent = true;
    struct postgresql_arguments ready;
    VALUE sql = postgresql_make_ready(protocol, exchange->arguments[0], exchange->arguments[1], &ready);
    VALUE prepared = postgresql_prepared_new(protocol, rb_str_new_frozen(sql), ready.types, ready.count);
    note_timeout(protocol, prepared, exchange->arguments[0]);
    postgresql_put_statement_timeout(protocol, postgresql_statement_of(prepared)->takes_timeout);
    put_prepare(protocol, prepared);
    put_run(protocol, prepared, &ready, false);
    exchange->unsent = false;
    postgresql_ask(protocol);
    RB_GC_GUARD(ready.holder);
    VALUE result = read_prepared(exchange, prepared);
    return rb_assoc_new(postgresql_statement_of(prepared)->open ? prepared : Qnil, result);
}

/* @api private protocol.run_named(sql, arguments) -> [Prepared or nil, Result or an error] */
static VALUE run_named(VALUE self, VALUE sql, VALUE arguments)
{
    arguments = postgresql_settled(self, sql, arguments, Qnil);
    if (!RB_TYPE_P(arguments, T_ARRAY)) return rb_assoc_new(Qnil, arguments);
    return postgresql_exchange_with(self, run_named_body, sql, arguments);
}

static VALUE prepare_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    exchange->unsent = true;
    uint32_t parameters;
    VALUE sql = postgresql_native_sql(protocol, exchange->arguments[0], &parameters);
    VALUE prepared = postgresql_prepared_new(protocol, rb_str_new_frozen(sql), NULL, 0);
    note_timeout(protocol, prepared, exchange->arguments[0]);
    postgresql_put_statement_timeout(protocol, false);
    put_prepare(protocol, prepared);
    postgresql_check(pg_put_sync(&protocol->request));
    exchange->unsent = false;
    postgresql_ask(protocol);
    VALUE result = read_prepared(exchange, prepared);
    if (postgresql_statement_of(prepared)->open) return prepared;
    if (!RTEST(rb_obj_is_kind_of(result, rb_eException)))
        db_protocol_violated(&protocol->base, "did not answer a Parse");
    return result;
}

/* @api private protocol.prepare(sql) -> Prepared or an error */
static VALUE postgresql_prepare(VALUE self, VALUE sql)
{
    return postgresql_exchange_with(self, prepare_body, sql, Qnil);
}

// If the arguments have other types than the statement was prepared for, it is prepared again in the same round trip: a
// statement gives the same result whether it was kept or not.
static VALUE postgresql_run_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    VALUE prepared = exchange->arguments[0];
    const struct postgresql_statement *statement = postgresql_statement_of(prepared);
    exchange->unsent = true;
    struct postgresql_arguments ready;
    postgresql_arguments(protocol, exchange->arguments[1], &ready);
    check_count(statement->count, ready.count);
    postgresql_put_statement_timeout(protocol, statement->takes_timeout);
    bool fit = statement->open && !exchange->number &&
               postgresql_arguments_fit(&ready, statement->declared, statement->types, statement->count);
    if (!fit) {
        postgresql_prepared_renew(protocol, prepared, ready.types, ready.count);
        put_prepare(protocol, prepared);
    }
    put_run(protocol, prepared, &ready, fit);
    exchange->unsent = false;
    postgresql_ask(protocol);
    RB_GC_GUARD(ready.holder);
    return fit ? postgresql_read_result(protocol, &postgresql_statement_of(prepared)->columns, prepared, Qnil)
               : read_prepared(exchange, prepared);
}

/* @api private protocol.run(prepared, arguments) -> Result or an error. Raises TransactionError, see run_new. */
static VALUE postgresql_run(VALUE self, VALUE prepared, VALUE arguments)
{
    arguments = postgresql_settled(self, postgresql_statement_of(prepared)->sql, arguments, prepared);
    if (!RB_TYPE_P(arguments, T_ARRAY)) return arguments;
    VALUE result = postgresql_exchange_with(self, postgresql_run_body, prepared, arguments);
    return unless_undone(self, postgresql_statement_of(prepared)->sql, result);
}

static VALUE run_text_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    exchange->unsent = true;
    VALUE sql = postgresql_sql_string(exchange->arguments[0]);
    VALUE ended = postgresql_ask_text(exchange, postgresql_span_of(sql));
    RB_GC_GUARD(sql);
    if (!NIL_P(ended)) return ended;
    return postgresql_read_result(protocol, NULL, Qnil, Qnil);
}

/* @api private protocol.run_text(sql) -> Result or an error. By a simple Query: values come as text. Raises
 * TransactionError, see run_new. */
static VALUE run_text(VALUE self, VALUE sql)
{
    return unless_undone(self, sql, postgresql_exchange_with(self, run_text_body, sql, Qnil));
}

// ---- closes

/* call-seq: protocol.close_later(prepared). Its Close rides with the next request. */
static VALUE close_later(VALUE self, VALUE prepared)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    struct postgresql_statement *statement = postgresql_statement_of(prepared);
    if (!statement->open) return Qnil;
    statement->open = false;
    if (!db_protocol_forked(&protocol->base)) pending_closes_add(statement->pending_closes, statement->id);
    RB_GC_GUARD(prepared);
    return Qnil;
}

/* call-seq: protocol.close_portal(name). Its Close rides with the next request. Not within a COPY. */
static VALUE close_portal(VALUE self, VALUE name)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    uint8_t bytes[64];
    struct pg_buffer buffer = {.at = bytes, .capacity = sizeof(bytes)};
    StringValue(name);
    postgresql_check(pg_put_close(&buffer, PG_PORTAL, postgresql_span_of(name)));
    stream_queue_no_reply(stream_of(protocol->base.stream), bytes, buffer.length);
    protocol->base.closes++;
    RB_GC_GUARD(name);
    return Qnil;
}

static bool owns(VALUE self, VALUE prepared)
{
    const struct postgresql_statement *statement = postgresql_statement_of(prepared);
    return statement->pending_closes == postgresql_protocol_of(self)->base.pending_closes;
}

/* call-seq: protocol.owns?(prepared) -> true or false */
static VALUE owns_p(VALUE self, VALUE prepared)
{
    return owns(self, prepared) ? Qtrue : Qfalse;
}

static VALUE flush_closes_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    postgresql_queue_pending_closes(protocol);
    stream_flush(stream_of(protocol->base.stream));
    protocol->base.closes = 0;
    return Qnil;
}

/* call-seq: protocol.flush_closes. Sends them in a packet of their own. */
static VALUE flush_closes(VALUE self)
{
    struct db_exchange exchange = {.self = self, .body = flush_closes_body, .unasked = true};
    return postgresql_exchange(&exchange);
}

/* @api private protocol.forget_statements: the server has closed them all. */
static VALUE postgresql_forget_statements(VALUE self)
{
    db_protocol_forget_statements(&postgresql_protocol_of(self)->base);
    return Qnil;
}

/* @api private protocol.tag = text: for the names of statements, 16 bytes at most */
static VALUE set_tag(VALUE self, VALUE text)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    StringValue(text);
    if ((size_t)RSTRING_LEN(text) >= sizeof(protocol->tag)) rb_raise(rb_eArgError, "a tag has 16 bytes at most");
    memcpy(protocol->tag, RSTRING_PTR(text), (size_t)RSTRING_LEN(text));
    protocol->tag[RSTRING_LEN(text)] = '\0';
    return text;
}

/* @api private protocol.skip_statement_ids(count): the next statement's name is by so many further. */
static VALUE skip_statement_ids(VALUE self, VALUE count)
{
    postgresql_protocol_of(self)->names += NUM2UINT(count);
    return count;
}

/* @api private Protocol.sanitize(text) -> String. Control characters are shown as \\xNN. */
static VALUE sanitize(VALUE klass, VALUE text)
{
    (void)klass;
    StringValue(text);
    return postgresql_text(postgresql_span_of(text));
}

/* @api private Protocol.load_classes: once those that values are made of are loaded */
static VALUE postgresql_load_classes(VALUE klass)
{
    postgresql_parameters_load_classes();
    postgresql_types_load_classes();
    postgresql_values_load_classes();
    postgresql_results_load_classes();
    return klass;
}

struct db_operations postgresql_operations = {.is_plain = postgresql_is_plain,
                                              .in_transaction = postgresql_in_transaction,
                                              .is_closed = db_protocol_is_closed,
                                              .is_forked = db_protocol_is_forked,
                                              .may_run = owns,
                                              .query = run_new,
                                              .run = postgresql_run};

void postgresql_commands_define(void)
{
    VALUE protocol = postgresql_cProtocol;
    db_operations_of(protocol, &postgresql_operations);
    rb_define_singleton_method(protocol, "load_classes", postgresql_load_classes, 0);
    rb_define_singleton_method(protocol, "sanitize", sanitize, 1);
    rb_define_method(protocol, "tag=", set_tag, 1);
    rb_define_method(protocol, "skip_statement_ids", skip_statement_ids, 1);
    rb_define_method(protocol, "parameter_types", parameter_types, 2);
    rb_define_method(protocol, "send_new", send_new, 2);
    rb_define_method(protocol, "receive", receive, 0);
    rb_define_method(protocol, "run_new", run_new, 2);
    rb_define_method(protocol, "run_own", run_own, 2);
    rb_define_method(protocol, "open_portal", open_portal, 4);
    rb_define_method(protocol, "fetch", fetch, 3);
    rb_define_method(protocol, "run_named", run_named, 2);
    rb_define_method(protocol, "prepare", postgresql_prepare, 1);
    rb_define_method(protocol, "run", postgresql_run, 2);
    rb_define_method(protocol, "run_text", run_text, 1);
    rb_define_method(protocol, "close_later", close_later, 1);
    rb_define_method(protocol, "close_portal", close_portal, 1);
    rb_define_method(protocol, "owns?", owns_p, 1);
    rb_define_method(protocol, "flush_closes", flush_closes, 0);
    rb_define_method(protocol, "forget_statements", postgresql_forget_statements, 0);
}
