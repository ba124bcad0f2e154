// Whole replies: everything that the server sends up to ReadyForQuery.
#include "db/postgresql/protocol.h"

#include "os/main_ractor.h"
#include "references.h"

#include <string.h>

VALUE postgresql_cPrepared;
static VALUE error_classes;

// ---- prepared statements

static void postgresql_statement_references(void *pointer, reference_function *each)
{
    struct postgresql_statement *statement = pointer;
    each(&statement->sql);
    each(&statement->columns);
    each(&statement->known);
}

REFERENCES(postgresql_statement)

// From a finalizer: the close is only noted.
static void postgresql_statement_release(void *pointer)
{
    if (main_ractor_releases(pointer, postgresql_statement_release)) return;
    struct postgresql_statement *statement = pointer;
    if (statement->open) pending_closes_add(statement->pending_closes, statement->id);
    pending_closes_release(statement->pending_closes);
    xfree(statement->declared);
    xfree(statement);
}

static size_t postgresql_statement_memsize(const void *pointer)
{
    const struct postgresql_statement *statement = pointer;
    return sizeof(*statement) + 2 * sizeof(uint32_t) * statement->count;
}

static const rb_data_type_t statement_type = {
    .wrap_struct_name = "Heddle::DB::PostgreSQL::Prepared",
    .function = {.dmark = postgresql_statement_mark,
                 .dfree = postgresql_statement_release,
                 .dsize = postgresql_statement_memsize,
                 .dcompact = postgresql_statement_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

struct postgresql_statement *postgresql_statement_of(VALUE prepared)
{
    return rb_check_typeddata(prepared, &statement_type);
}

static void declare(struct postgresql_statement *statement, const uint32_t *declared, size_t count)
{
    uint32_t *memory = ZALLOC_N(uint32_t, 2 * count + 1);
    if (count) memcpy(memory, declared, count * sizeof(uint32_t));
    xfree(statement->declared);
    statement->declared = memory;
    statement->types = memory + count;
    statement->count = (uint32_t)count;
}

static uint32_t next_id(struct postgresql_protocol *protocol)
{
    if (++protocol->names == 0) protocol->names = 1; // 0 is the unnamed statement
    return protocol->names;
}

VALUE postgresql_prepared_new(struct postgresql_protocol *protocol, VALUE sql, const uint32_t *declared, size_t count)
{
    struct postgresql_statement *statement;
    VALUE self = TypedData_Make_Struct(postgresql_cPrepared, struct postgresql_statement, &statement_type, statement);
    RB_OBJ_WRITE(self, &statement->sql, sql);
    statement->columns = Qnil;
    RB_OBJ_WRITE(self, &statement->known, protocol->types);
    declare(statement, declared, count);
    statement->id = next_id(protocol);
    statement->pending_closes = pending_closes_share(protocol->base.pending_closes);
    return self;
}

void postgresql_prepared_renew(struct postgresql_protocol *protocol, VALUE prepared, const uint32_t *declared,
                               size_t count)
{
    struct postgresql_statement *statement = postgresql_statement_of(prepared);
    declare(statement, declared, count);
    if (statement->open) pending_closes_add(statement->pending_closes, statement->id);
    statement->open = false;
    statement->id = next_id(protocol);
    RB_GC_GUARD(prepared);
}

/* call-seq: prepared.parameters -> Integer */
static VALUE parameters(VALUE self)
{
    return UINT2NUM(postgresql_statement_of(self)->count);
}

/* call-seq: prepared.types -> Array of Integer. OIDs of the parameters' types. */
VALUE postgresql_statement_types(VALUE self)
{
    const struct postgresql_statement *statement = postgresql_statement_of(self);
    VALUE array = rb_ary_new_capa((long)statement->count);
    for (uint32_t i = 0; i < statement->count; i++)
        rb_ary_push(array, UINT2NUM(statement->types[i]));
    RB_GC_GUARD(self);
    return array;
}

/* @api private prepared.type_symbols -> Array of Symbol. Of the parameters. */
static VALUE type_symbols(VALUE self)
{
    const struct postgresql_statement *statement = postgresql_statement_of(self);
    VALUE array = rb_ary_new_capa((long)statement->count);
    for (uint32_t i = 0; i < statement->count; i++)
        rb_ary_push(array, postgresql_type_symbol(statement->known, statement->types[i]));
    RB_GC_GUARD(self);
    return array;
}

/* call-seq: prepared.columns -> Columns or nil */
static VALUE columns(VALUE self)
{
    return postgresql_statement_of(self)->columns;
}

/* call-seq: prepared.open? -> true or false */
static VALUE open_p(VALUE self)
{
    return postgresql_statement_of(self)->open ? Qtrue : Qfalse;
}

// ---- errors

static const struct {
    uint8_t field;
    const char *variable;
} texts[] = {
    {PG_ERROR_SQLSTATE, "@sql_state"},    {PG_ERROR_DETAIL, "@detail"}, {PG_ERROR_HINT, "@hint"},
    {PG_ERROR_SCHEMA, "@schema"},         {PG_ERROR_TABLE, "@table"},   {PG_ERROR_COLUMN, "@column"},
    {PG_ERROR_CONSTRAINT, "@constraint"},
};

// All results are binary, but aclitem and a few types of extensions have only a text form.
static void suggest_text(VALUE error, VALUE state, VALUE said)
{
    if (strcmp(StringValueCStr(state), "42883") || !strstr(StringValueCStr(said), "binary output")) return;
    if (!NIL_P(rb_attr_get(error, rb_intern("@hint")))) return;
    rb_ivar_set(error, rb_intern("@hint"),
                rb_utf8_str_new_cstr("This type has no binary form: cast the column to text (column::text, or "
                                     "column::text[] for an array)."));
}

VALUE postgresql_error_value(struct pg_message message)
{
    struct pg_error_fields fields;
    pg_error_fields(message.p, message.end, &fields);
    VALUE state = rb_utf8_str_new(NULL, 0), said = state;
    if (fields.of[PG_ERROR_SQLSTATE].at) state = postgresql_text(fields.of[PG_ERROR_SQLSTATE]);
    if (fields.of[PG_ERROR_MESSAGE].at) said = postgresql_text(fields.of[PG_ERROR_MESSAGE]);
    VALUE error = db_server_error(error_classes, state, said);
    rb_ivar_set(error, rb_intern("@sql_state"), state);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (fields.of[texts[i].field].at)
            rb_ivar_set(error, rb_intern(texts[i].variable), postgresql_text(fields.of[texts[i].field]));
    struct pg_span span = fields.of[PG_ERROR_POSITION];
    if (span.at && span.length < 10) {
        long position = 0;
        for (size_t i = 0; i < span.length && span.at[i] >= '0' && span.at[i] <= '9'; i++)
            position = 10 * position + (span.at[i] - '0');
        if (position) rb_ivar_set(error, rb_intern("@position"), LONG2NUM(position));
    }
    if (fields.of[PG_ERROR_SEVERITY].at)
        rb_ivar_set(error, rb_intern("@severity"), postgresql_text(fields.of[PG_ERROR_SEVERITY]));
    else if (postgresql_is_fatal(message))
        rb_ivar_set(error, rb_intern("@severity"), postgresql_text(fields.of[PG_ERROR_SEVERITY_LOCAL]));
    suggest_text(error, state, said);
    return error;
}

// ---- replies

static void describe_parameters(struct postgresql_protocol *protocol, struct pg_message message, VALUE prepared)
{
    struct pg_parameters described;
    if (!pg_parameters(message.p, message.end, &described))
        db_protocol_violated(&protocol->base, "sent a malformed description of parameters");
    struct postgresql_statement *statement = postgresql_statement_of(prepared);
    if (described.count != statement->count) {
        // Fewer were declared than there are; POSTGRESQL_ANY is 0.
        uint32_t *memory = ZALLOC_N(uint32_t, 2 * (size_t)described.count + 1);
        for (uint32_t i = 0; i < statement->count && i < described.count; i++)
            memory[i] = statement->declared[i];
        xfree(statement->declared);
        statement->declared = memory;
        statement->types = memory + described.count;
        statement->count = described.count;
    }
    for (uint16_t i = 0; i < described.count; i++)
        statement->types[i] = pg_parameter_type(&described, i);
    for (uint16_t i = 0; i < described.count && !protocol->textual; i++)
        if (postgresql_type_of(protocol->types, statement->types[i]).kind == POSTGRESQL_KIND_UNKNOWN)
            postgresql_type_wanted(protocol, statement->types[i]);
    RB_GC_GUARD(prepared);
}

struct reply {
    VALUE *known, owner, prepared; // `known` is of the Prepared `owner`, or on the stack
    VALUE description, rows;
    VALUE first, last, error;
    VALUE each;  // Array of the results of a pipeline's statements, which do not follow one another; 0 for none
    bool parsed; // the server has the statement `prepared`, which is `open` once it is described, too
    bool bound;  // from here on something of the statement may have been executed
    bool fatal;  // the server closes the connection behind the error
};

static bool is_severity(struct pg_span severity, const char *name)
{
    return severity.at && severity.length == strlen(name) && memcmp(severity.at, name, severity.length) == 0;
}

// Servers since 9.6 name the severity untranslated, too; poolers name only one.
static struct pg_span severity_in(struct pg_message message)
{
    struct pg_span severity = {NULL, 0};
    if (!pg_error_field(message.p, message.end, PG_ERROR_SEVERITY, &severity))
        pg_error_field(message.p, message.end, PG_ERROR_SEVERITY_LOCAL, &severity);
    return severity;
}

bool postgresql_is_fatal(struct pg_message message)
{
    struct pg_span severity = severity_in(message);
    return is_severity(severity, "FATAL") || is_severity(severity, "PANIC");
}

// Ends the result that is being read, if there is one.
static void end_result(struct reply *reply, uint64_t affected)
{
    VALUE result = db_result_new(reply->description, reply->rows, ULL2NUM(affected));
    if (reply->each) {
        rb_ary_push(reply->each, result);
    } else {
        if (reply->last) db_result_set_following(reply->last, result);
        if (!reply->first) reply->first = result;
        reply->last = result;
    }
    reply->description = reply->rows = Qnil;
}

static void read_row(struct postgresql_protocol *protocol, struct pg_message message, struct reply *reply)
{
    if (NIL_P(reply->description) && reply->known) reply->description = *reply->known;
    if (NIL_P(reply->description)) db_protocol_violated(&protocol->base, "sent a row of columns that nobody knows");
    if (NIL_P(reply->rows)) reply->rows = rb_ary_new();
    rb_ary_push(reply->rows, postgresql_row_values(protocol, message, reply->description));
}

static void complete(struct postgresql_protocol *protocol, struct pg_message message, struct reply *reply)
{
    struct pg_command command;
    if (!pg_command(message.p, message.end, &command))
        db_protocol_violated(&protocol->base, "sent a malformed end of a statement");
    protocol->rolled_back = command.verb == PG_VERB_ROLLBACK;
    bool has_rows = !NIL_P(reply->description) || (reply->known && !NIL_P(*reply->known) && !reply->last);
    if (has_rows && NIL_P(reply->description)) reply->description = *reply->known;
    if (has_rows && NIL_P(reply->rows)) reply->rows = rb_ary_new();
    bool reads = command.verb == PG_VERB_SELECT || command.verb == PG_VERB_FETCH || command.verb == PG_VERB_MOVE;
    end_result(reply, command.counted && !(reads && has_rows) ? command.rows : 0);
}

static void note_description(const struct reply *reply)
{
    if (reply->parsed) postgresql_statement_of(reply->prepared)->open = true;
}

// It names the methods for COPY.
static VALUE copy_refused(void)
{
    VALUE said = rb_utf8_str_new_cstr("a COPY from STDIN or to STDOUT is run by copy_in or copy_out: "
                                      "db.copy_in(sql) { |copy| copy << row }, db.copy_out(sql) { |row| … }");
    VALUE error = rb_exc_new_str(rb_path2class("Heddle::DB::ServerError"), said);
    rb_ivar_set(error, rb_intern("@sql_state"), rb_utf8_str_new_cstr("0A000")); // feature_not_supported
    return error;
}

void postgresql_copy_put_refusal(struct pg_buffer *buffer, const char *reason)
{
    postgresql_check(pg_put_copy_fail(buffer, (struct pg_span){(const uint8_t *)reason, strlen(reason)}));
}

// In a COPY the server passes over the Sync that came with a statement of the extended protocol. Behind requests that
// travel together nobody knows whose Sync that was.
static void refuse_copy(struct postgresql_protocol *protocol)
{
    if (protocol->base.owed > 1) db_protocol_violated(&protocol->base, "began a COPY in the middle of a pipeline");
    postgresql_copy_put_refusal(&protocol->request, "no COPY was expected");
    if (protocol->state != POSTGRESQL_SIMPLE) postgresql_check(pg_put_sync(&protocol->request));
    struct stream *stream = stream_of(protocol->base.stream);
    stream_append(stream, protocol->request.at, protocol->request.length);
    protocol->request.length = 0;
}

// Whether the message answers what postgresql_put_statement_timeout has put in front of the statement.
static bool is_of_timeout(struct postgresql_protocol *protocol, struct pg_message message)
{
    bool *ahead = postgresql_timeout_ahead(protocol);
    if (!*ahead || message.type == PG_CLOSE_COMPLETE || message.type == PG_READY_FOR_QUERY) return false;
    *ahead = message.type != PG_COMMAND_COMPLETE && message.type != PG_ERROR_RESPONSE;
    return message.type != PG_ERROR_RESPONSE;
}

// False at the end.
static bool read_message(struct postgresql_protocol *protocol, struct reply *reply)
{
    struct pg_message message = postgresql_message(protocol);
    if (is_of_timeout(protocol, message)) return true;
    switch (message.type) {
    case PG_READY_FOR_QUERY:
        if (!pg_ready_for_query(message.p, message.end, &protocol->transaction))
            db_protocol_violated(&protocol->base, "sent a malformed state of the transaction");
        return false;
    case PG_ROW_DESCRIPTION:
        reply->description = postgresql_columns_new(protocol, message);
        if (reply->known) *reply->known = reply->description;
        if (!NIL_P(reply->owner)) RB_OBJ_WRITTEN(reply->owner, Qundef, reply->description);
        note_description(reply);
        return true;
    case PG_NO_DATA:
        if (reply->known) *reply->known = Qnil;
        note_description(reply);
        return true;
    case PG_PARAMETER_DESCRIPTION:
        if (NIL_P(reply->prepared))
            db_protocol_violated(&protocol->base, "described parameters that nobody had asked about");
        describe_parameters(protocol, message, reply->prepared);
        return true;
    case PG_DATA_ROW: read_row(protocol, message, reply); return true;
    case PG_COMMAND_COMPLETE: complete(protocol, message, reply); return true;
    case PG_EMPTY_QUERY_RESPONSE: end_result(reply, 0); return true;
    case PG_PORTAL_SUSPENDED:
        if (NIL_P(reply->description) && (!reply->known || NIL_P(*reply->known)))
            db_protocol_violated(&protocol->base, "keeps rows of columns that nobody knows");
        if (protocol->state == POSTGRESQL_SIMPLE)
            db_protocol_violated(&protocol->base, "keeps rows of a text's statement");
        postgresql_become(protocol, POSTGRESQL_SUSPENDED);
        if (NIL_P(reply->rows)) reply->rows = rb_ary_new();
        end_result(reply, 0);
        return true;
    case PG_ERROR_RESPONSE:
        reply->fatal = postgresql_is_fatal(message);
        if (!reply->error || reply->fatal) reply->error = postgresql_error_value(message);
        if (postgresql_timed_out(protocol)) rb_ivar_set(reply->error, rb_intern("@late"), Qtrue);
        return !reply->fatal;
    case PG_PARSE_COMPLETE: reply->parsed = !NIL_P(reply->prepared); return true;
    case PG_BIND_COMPLETE: reply->bound = true; return true;
    case PG_CLOSE_COMPLETE: return true;
    case PG_COPY_IN_RESPONSE:
        if (reply->each) db_protocol_violated(&protocol->base, "began a COPY in the middle of a pipeline");
        if (!reply->error) reply->error = copy_refused();
        refuse_copy(protocol);
        return true;
    case PG_COPY_OUT_RESPONSE:
        if (!reply->error) reply->error = copy_refused();
        return true;
    case PG_COPY_DATA:
    case PG_COPY_DONE: return true;
    default: db_protocol_violated(&protocol->base, "sent a message that has no place in an answer");
    }
}

// A limit of time or a cancel may interrupt between Parse and Describe: the server has a statement whose columns nobody
// knows then.
static void close_undescribed(struct postgresql_protocol *protocol, const struct reply *reply)
{
    if (!reply->parsed) return;
    const struct postgresql_statement *statement = postgresql_statement_of(reply->prepared);
    if (!statement->open) pending_closes_add(protocol->base.pending_closes, statement->id);
}

static void read_reply(struct postgresql_protocol *protocol, struct reply *reply)
{
    if (!protocol->base.owed) rb_raise(rb_eRuntimeError, "no reply is owed");
    // If the server owes only this answer, its reply to a cancel ends where the answer ends.
    bool only = protocol->base.owed == 1 && !postgresql_in_copy(protocol);
    stream_set_resumable(stream_of(protocol->base.stream), only || protocol->base.shared);
    while (read_message(protocol, reply))
        continue;
    if (reply->fatal) return; // no ReadyForQuery will come
    postgresql_replied(protocol);
    close_undescribed(protocol, reply);
}

// How far the server had come with the statement when it refused to continue: Heddle::DB::ServerError#stage. Parse and
// Bind execute nothing. A text of a simple Query has no such marks.
static void tell_stage(const struct postgresql_protocol *protocol, const struct reply *reply)
{
    if (protocol->state == POSTGRESQL_SIMPLE) return;
    const char *stage = reply->first ? "completed" : reply->bound ? "begun" : "refused";
    rb_ivar_set(reply->error, rb_intern("@stage"), ID2SYM(rb_intern(stage)));
}

VALUE postgresql_read_result(struct postgresql_protocol *protocol, VALUE *known, VALUE owner, VALUE prepared)
{
    struct reply reply = {.known = known, .owner = owner, .prepared = prepared, .description = Qnil, .rows = Qnil};
    read_reply(protocol, &reply);
    RB_GC_GUARD(reply.description);
    RB_GC_GUARD(reply.rows);
    RB_GC_GUARD(reply.first);
    RB_GC_GUARD(reply.prepared);
    RB_GC_GUARD(reply.error);
    if (reply.error) {
        tell_stage(protocol, &reply);
        return reply.error;
    }
    return reply.first ? reply.first : db_result_new(Qnil, Qnil, INT2FIX(0));
}

VALUE postgresql_read_results(struct postgresql_protocol *protocol, size_t count, VALUE *error)
{
    VALUE results = rb_ary_new_capa((long)count);
    struct reply reply = {.owner = Qnil, .prepared = Qnil, .description = Qnil, .rows = Qnil, .each = results};
    read_reply(protocol, &reply);
    *error = reply.error ? reply.error : Qnil;
    size_t came = (size_t)RARRAY_LEN(results);
    if (reply.error ? came > count : came != count)
        db_protocol_violated(&protocol->base, "answered another number of statements than it was sent");
    RB_GC_GUARD(reply.description);
    RB_GC_GUARD(reply.rows);
    RB_GC_GUARD(reply.error);
    RB_GC_GUARD(results);
    return results;
}

void postgresql_results_define(void)
{
    postgresql_cPrepared = rb_define_class_under(rb_path2class("Heddle::DB::PostgreSQL"), "Prepared", rb_cObject);
    rb_gc_register_mark_object(postgresql_cPrepared);
    rb_undef_alloc_func(postgresql_cPrepared);
    rb_define_method(postgresql_cPrepared, "parameters", parameters, 0);
    rb_define_method(postgresql_cPrepared, "types", postgresql_statement_types, 0);
    rb_define_method(postgresql_cPrepared, "type_symbols", type_symbols, 0);
    rb_define_method(postgresql_cPrepared, "columns", columns, 0);
    rb_define_method(postgresql_cPrepared, "open?", open_p, 0);
}

void postgresql_results_load_classes(void)
{
    db_result_load_classes();
    error_classes = rb_const_get(rb_path2class("Heddle::DB::PostgreSQL"), rb_intern("ERROR_CLASSES"));
    rb_gc_register_mark_object(error_classes);
}
