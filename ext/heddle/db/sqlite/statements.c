// Prepared statements.
#include "db/sqlite/database.h"

#include "os/main_ractor.h"
#include "references.h"

#include <ruby/encoding.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static VALUE cPrepared;
static ID id_set_seconds, kind_names[4]; // by enum sqlite_statement_kind

// ---- the object

static void sqlite_statement_references(void *pointer, reference_function *each)
{
    struct sqlite_statement *statement = pointer;
    each(&statement->self);
    each(&statement->database);
    each(&statement->description);
}

REFERENCES(sqlite_statement)

static void sqlite_statement_release(void *pointer)
{
    if (main_ractor_releases(pointer, sqlite_statement_release)) return;
    struct sqlite_statement *statement = pointer;
    if (statement->at && sqlite_core_alive(statement->core)) {
        statement->orphan = true;
        sqlite_statement_finalize(statement); // frees the record, now or when SQLite is no longer busy
    } else {
        sqlite_statement_free(statement);
    }
}

static size_t sqlite_statement_memsize(const void *pointer)
{
    const struct sqlite_statement *statement = pointer;
    return sizeof(struct sqlite_statement) + (size_t)statement->columns;
}

static const rb_data_type_t statement_type = {
    .wrap_struct_name = "Heddle::DB::SQLite::Prepared",
    .function = {.dmark = sqlite_statement_mark,
                 .dfree = sqlite_statement_release,
                 .dsize = sqlite_statement_memsize,
                 .dcompact = sqlite_statement_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

struct sqlite_statement *sqlite_statement_of(VALUE prepared)
{
    return rb_check_typeddata(prepared, &statement_type);
}

// ---- prepare

VALUE sqlite_sql(VALUE sql)
{
    if (!RB_TYPE_P(sql, T_STRING)) rb_raise(rb_eTypeError, "SQL must be a String, not %+" PRIsVALUE, sql);
    if (rb_enc_get(sql) != rb_utf8_encoding() && rb_enc_str_coderange(sql) != ENC_CODERANGE_7BIT)
        sql = rb_str_encode(sql, rb_enc_from_encoding(rb_utf8_encoding()), 0, Qnil);
    if (memchr(RSTRING_PTR(sql), 0, (size_t)RSTRING_LEN(sql)))
        rb_raise(rb_eArgError, "the text of a statement cannot contain a NUL: bind the text to a parameter");
    if (RSTRING_LEN(sql) >= INT_MAX) rb_raise(rb_eArgError, "the text of a statement has less than 2 GiB");
    return rb_str_new_frozen(sql);
}

// Skips white space, byte order marks (which SQLite takes for spaces), comments, and semicolons.
static const char *skip_blank(const char *p, const char *end)
{
    while (p < end) {
        if (*p == ' ' || (*p >= '\t' && *p <= '\r') || *p == ';') {
            p++;
        } else if (end - p >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0) {
            p += 3;
        } else if (end - p >= 2 && p[0] == '-' && p[1] == '-') {
            const char *line = memchr(p, '\n', (size_t)(end - p));
            p = line ? line + 1 : end;
        } else if (end - p >= 2 && p[0] == '/' && p[1] == '*') {
            p += 2;
            while (p < end && !(end - p >= 2 && p[0] == '*' && p[1] == '/'))
                p++;
            p = end - p >= 2 ? p + 2 : end;
        } else {
            break;
        }
    }
    return p;
}

static bool sqlite_is_word(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           byte == '_' || (unsigned char)byte >= 0x80;
}

static const char *skip_word(const char *p, const char *end)
{
    while (p < end && sqlite_is_word(*p))
        p++;
    return p;
}

static bool same_word(const char *p, const char *end, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(end - p) == length && strncasecmp(p, word, length) == 0;
}

bool sqlite_is_plain(VALUE self, VALUE sql)
{
    static const char *const words[] = {"select", "insert", "update", "delete", "values", "with", "replace"};
    (void)self;
    if (!rb_enc_asciicompat(rb_enc_get(sql))) return false;
    const char *p = RSTRING_PTR(sql), *end = p + RSTRING_LEN(sql);
    if (memchr(p, ';', (size_t)(end - p))) return false;
    while (p < end && (*p == ' ' || (*p >= '\t' && *p <= '\r')))
        p++;
    const char *word_end = skip_word(p, end);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (same_word(p, word_end, words[i])) return true;
    }
    return false;
}

/*
 * @api private Database.plain?(sql) -> true or false
 *
 * Whether the text is most likely one statement that reads or writes rows, as almost all are. SQLite examines the
 * others: see kind.
 */
static VALUE database_plain_p(VALUE klass, VALUE sql)
{
    return RB_TYPE_P(sql, T_STRING) && sqlite_is_plain(klass, sql) ? Qtrue : Qfalse;
}

static void sqlite_describe(struct sqlite_statement *statement)
{
    sqlite3_stmt *at = statement->at;
    int count = sqlite_api.column_count(at);
    statement->parameters = sqlite_api.bind_parameter_count(at);
    statement->reads = sqlite_api.stmt_readonly(at) != 0;
    statement->prepared_anew = sqlite_api.stmt_status(at, SQLITE_STMTSTATUS_REPREPARE, 0);
    uint8_t *kinds = count ? ALLOC_N(uint8_t, count) : NULL;
    for (int i = 0; i < count; i++)
        kinds[i] = (uint8_t)sqlite_kind_of(sqlite_api.column_decltype(at, i));
    xfree(statement->kinds);
    statement->kinds = kinds;
    statement->columns = count;
    RB_OBJ_WRITE(statement->self, &statement->description, count ? sqlite_columns_new(at, count) : Qnil);
}

void sqlite_statement_refresh(struct sqlite_statement *statement)
{
    if (statement->prepared_anew == sqlite_api.stmt_status(statement->at, SQLITE_STMTSTATUS_REPREPARE, 0)) return;
    sqlite_keep_waiting(sqlite_database_of(statement->database));
    sqlite_describe(statement);
}

// PRAGMA busy_timeout = … is carried out when it is prepared. Its row has the milliseconds.
static void note_busy_timeout(struct sqlite_database *database, struct sqlite_statement *statement)
{
    if (NIL_P(database->waiter) || !statement->sets_timeout) return;
    if (sqlite_api.step(statement->at) == SQLITE_ROW)
        rb_funcall(database->waiter, id_set_seconds, 1,
                   DBL2NUM((double)sqlite_api.column_int64(statement->at, 0) / 1000.0));
    sqlite_api.reset(statement->at);
}

static int prepare_one(struct sqlite_database *database, struct sqlite_statement *statement, const char *text,
                       const char *end, const char **tail)
{
    // Without the NUL that Ruby keeps behind most texts, SQLite would copy the rest of the text for each of its
    // statements.
    int length = (int)(end - text) + (*end == 0);
    database->preparing = statement;
    // Without SQLITE_PREPARE_PERSISTENT, by which the parser would take all its memory from malloc: a quarter of its
    // time. Statements that stay may use up the connection's own memory; then SQLite turns to malloc by itself.
    int code = sqlite_api.prepare_v3(database->core->db, text, length, 0, &statement->at, tail);
    database->preparing = NULL;
    sqlite_note_kind(database, statement);
    return code;
}

VALUE sqlite_prepare(VALUE self, VALUE sql, size_t offset)
{
    struct sqlite_database *database = sqlite_database_of(self);
    struct sqlite_statement *statement;
    VALUE prepared = TypedData_Make_Struct(cPrepared, struct sqlite_statement, &statement_type, statement);
    statement->database = statement->description = Qnil;
    statement->core = database->core;
    database->core->references++;
    statement->self = prepared;
    RB_OBJ_WRITE(prepared, &statement->database, self);
    const char *text = RSTRING_PTR(sql) + offset, *end = RSTRING_PTR(sql) + RSTRING_LEN(sql), *tail = NULL;
    database->stepping = true;
    int code = prepare_one(database, statement, text, end, &tail);
    database->stepping = false;
    sqlite_keep_waiting(database);
    if (statement->at) {
        statement->next = database->core->statements;
        if (statement->next) statement->next->previous = statement;
        database->core->statements = statement;
    }
    sqlite_settle(database);
    if (code != SQLITE_OK) return sqlite_error_value(database, code);
    if (statement->at) {
        sqlite_describe(statement);
        note_busy_timeout(database, statement);
        tail = skip_blank(tail, end);
        statement->tail = tail < end ? (size_t)(tail - RSTRING_PTR(sql)) : 0;
    }
    RB_GC_GUARD(sql);
    return prepared;
}

// ---- methods

static VALUE prepare_body(struct sqlite_call *call)
{
    return sqlite_prepare(call->self, call->arguments[0], NUM2SIZET(call->arguments[1]));
}

/*
 * call-seq: database.prepare(sql, offset) -> Prepared or error
 *
 * Prepares the statement that begins at this offset (bytes). Only for the first one of a frozen text in UTF-8 is the
 * whole text looked at: a look for each of many statements would take a time that grows with the square of the length.
 */
static VALUE database_prepare(VALUE self, VALUE sql, VALUE offset)
{
    size_t from = NUM2SIZET(offset);
    bool known = from > 0 && RB_TYPE_P(sql, T_STRING) && OBJ_FROZEN(sql) && rb_enc_get(sql) == rb_utf8_encoding();
    struct sqlite_call call = {
        .self = self, .body = prepare_body, .arguments = {known ? sql : sqlite_sql(sql), offset}};
    if (from > (size_t)RSTRING_LEN(call.arguments[0])) rb_raise(rb_eArgError, "beyond the end of the SQL");
    VALUE result = sqlite_call(&call);
    RB_GC_GUARD(call.arguments[0]);
    return result;
}

static VALUE kind_body(struct sqlite_call *call)
{
    VALUE sql = call->arguments[0];
    const char *start = RSTRING_PTR(sql), *end = start + RSTRING_LEN(sql), *text = start;
    enum sqlite_statement_kind kind = SQLITE_PLAIN;
    while (text < end) {
        struct sqlite_statement statement = {0};
        const char *tail = NULL;
        int code = prepare_one(call->database, &statement, text, end, &tail);
        sqlite_api.finalize(statement.at);
        free(statement.target);
        if (statement.kind > kind) kind = statement.kind;
        if (code != SQLITE_OK) {
            if (text > start && kind < SQLITE_OTHER) kind = SQLITE_OTHER;
            break;
        }
        text = skip_blank(tail, end);
    }
    RB_GC_GUARD(sql);
    return ID2SYM(kind_names[kind]);
}

/*
 * call-seq: database.kind(sql) -> :plain, :session, :other or :commit
 *
 * Has SQLite prepare each statement of the text, and say what it would do; runs nothing, and waits for nothing. Ends at
 * a statement that cannot be prepared now, such as one for a table that a statement before it creates: what follows
 * is known when it is prepared to run.
 */
static VALUE database_kind(VALUE self, VALUE sql)
{
    struct sqlite_call call = {.self = self, .body = kind_body, .arguments = {sqlite_sql(sql)}};
    VALUE kind = sqlite_call(&call);
    RB_GC_GUARD(call.arguments[0]);
    return kind;
}

/*
 * call-seq: database.release(prepared) -> nil
 *
 * Closes the statement, as soon as SQLite is not busy.
 */
static VALUE database_release(VALUE self, VALUE prepared)
{
    struct sqlite_statement *statement = sqlite_statement_of(prepared);
    if (statement->at && statement->database == self && sqlite_core_alive(statement->core))
        sqlite_statement_finalize(statement);
    return Qnil;
}

bool sqlite_owns(VALUE self, VALUE prepared)
{
    const struct sqlite_statement *statement = sqlite_statement_of(prepared);
    return statement->at && !statement->doomed && statement->database == self;
}

/* call-seq: database.owns?(prepared) -> true or false */
static VALUE database_owns_p(VALUE self, VALUE prepared)
{
    return sqlite_owns(self, prepared) ? Qtrue : Qfalse;
}

/* call-seq: prepared.parameters -> Integer */
static VALUE prepared_parameters(VALUE self)
{
    return INT2NUM(sqlite_statement_of(self)->parameters);
}

/* call-seq: prepared.columns -> Columns or nil */
static VALUE prepared_columns(VALUE self)
{
    return sqlite_statement_of(self)->description;
}

/* call-seq: prepared.reads? -> true or false: whether it changes no database */
static VALUE prepared_reads_p(VALUE self)
{
    return sqlite_statement_of(self)->reads ? Qtrue : Qfalse;
}

/* call-seq: prepared.ends_transaction? -> true or false: whether it begins or ends one */
static VALUE prepared_ends_transaction_p(VALUE self)
{
    return sqlite_statement_of(self)->kind == SQLITE_COMMIT ? Qtrue : Qfalse;
}

/* call-seq: prepared.empty? -> true or false: whether there was nothing but comments */
static VALUE prepared_empty_p(VALUE self)
{
    return sqlite_statement_of(self)->at ? Qfalse : Qtrue;
}

/* call-seq: prepared.tail -> Integer or nil: where the next statement of the text begins, in bytes */
static VALUE prepared_tail(VALUE self)
{
    size_t tail = sqlite_statement_of(self)->tail;
    return tail ? SIZET2NUM(tail) : Qnil;
}

void sqlite_statements_define(void)
{
    id_set_seconds = rb_intern("seconds=");
    kind_names[SQLITE_PLAIN] = rb_intern("plain");
    kind_names[SQLITE_HAS_PRAGMA] = rb_intern("session");
    kind_names[SQLITE_OTHER] = rb_intern("other");
    kind_names[SQLITE_COMMIT] = rb_intern("commit");
    cPrepared = rb_define_class_under(rb_path2class("Heddle::DB::SQLite"), "Prepared", rb_cObject);
    rb_gc_register_mark_object(cPrepared);
    rb_undef_alloc_func(cPrepared);
    rb_define_method(cPrepared, "parameters", prepared_parameters, 0);
    rb_define_method(cPrepared, "columns", prepared_columns, 0);
    rb_define_method(cPrepared, "reads?", prepared_reads_p, 0);
    rb_define_method(cPrepared, "ends_transaction?", prepared_ends_transaction_p, 0);
    rb_define_method(cPrepared, "empty?", prepared_empty_p, 0);
    rb_define_method(cPrepared, "tail", prepared_tail, 0);
    rb_define_singleton_method(sqlite_cDatabase, "plain?", database_plain_p, 1);
    rb_define_method(sqlite_cDatabase, "kind", database_kind, 1);
    rb_define_method(sqlite_cDatabase, "prepare", database_prepare, 2);
    rb_define_method(sqlite_cDatabase, "release", database_release, 1);
    rb_define_method(sqlite_cDatabase, "owns?", database_owns_p, 1);
}
