// Functions, aggregates and collations that SQL calls and Ruby code runs, on the stack of the fiber whose statement
// calls them. They may wait. An exception ends the statement, and is raised by the call that ran it.
#include "db/sqlite/database.h"

#include <ruby/encoding.h>
#include <string.h>

// What SQLite keeps of a function. SQLite ends it: when the connection closes, or another one takes its name.
static ID id_call, id_new, id_step, id_finish;

static VALUE argument_value(sqlite3_value *value)
{
    switch (sqlite_api.value_type(value)) {
    case SQLITE_INTEGER: return LL2NUM(sqlite_api.value_int64(value));
    case SQLITE_FLOAT: return DBL2NUM(sqlite_api.value_double(value));
    case SQLITE_TEXT: {
        const void *text = sqlite_api.value_text(value);
        return sqlite_column_text(text, sqlite_api.value_bytes(value));
    }
    case SQLITE_BLOB: {
        const void *bytes = sqlite_api.value_blob(value);
        return rb_str_new(bytes ? bytes : "", sqlite_api.value_bytes(value));
    }
    default: return Qnil;
    }
}

static void give_result(struct sqlite_database *database, sqlite3_context *context, VALUE value)
{
    value = sqlite_storable(database, value);
    if (NIL_P(value)) {
        sqlite_api.result_null(context);
    } else if (RB_INTEGER_TYPE_P(value)) {
        sqlite_api.result_int64(context, sqlite_integer(value));
    } else if (RB_FLOAT_TYPE_P(value)) {
        sqlite_api.result_double(context, RFLOAT_VALUE(value));
    } else if (rb_enc_get(value) == rb_ascii8bit_encoding()) {
        sqlite_api.result_blob64(context, RSTRING_PTR(value), (uint64_t)RSTRING_LEN(value), SQLITE_TRANSIENT);
    } else {
        sqlite_api.result_text64(context, RSTRING_PTR(value), (uint64_t)RSTRING_LEN(value), SQLITE_TRANSIENT,
                                 SQLITE_UTF8);
    }
    RB_GC_GUARD(value);
}

struct calling {
    struct sqlite_function *function;
    sqlite3_context *context;
    int count;
    sqlite3_value **values;
    VALUE receiver;
    ID method;
    bool returns;
};

static VALUE call_ruby(VALUE argument)
{
    const struct calling *calling = (const struct calling *)argument;
    VALUE arguments = rb_ary_new_capa(calling->count);
    for (int i = 0; i < calling->count; i++)
        rb_ary_push(arguments, argument_value(calling->values[i]));
    VALUE result = rb_apply(calling->receiver, calling->method, arguments);
    if (calling->returns) give_result(calling->function->database, calling->context, result);
    return Qnil;
}

static const char STOPPED[] = "a function in Ruby was interrupted";

// Returns whether Ruby may be called now. The GC and a reset may not.
static bool may_call(const struct sqlite_database *database)
{
    return database->stepping && !database->jump && !database->core->closing;
}

static void protect(struct calling *calling, VALUE (*body)(VALUE))
{
    struct sqlite_database *database = calling->function->database;
    int state = 0;
    if (may_call(database)) {
        rb_protect(body, (VALUE)calling, &state);
        database->stepping = true; // another fiber's use of this connection is refused; this is still the same step
        if (!sqlite_keep(database, state)) return;
    }
    sqlite_api.result_error(calling->context, STOPPED, -1);
}

static void call_function(sqlite3_context *context, int count, sqlite3_value **values)
{
    struct sqlite_function *function = sqlite_api.user_data(context);
    struct calling calling = {.function = function,
                              .context = context,
                              .count = count,
                              .values = values,
                              .receiver = function->callable,
                              .method = id_call,
                              .returns = true};
    protect(&calling, call_ruby);
}

// ---- aggregates: an object for each group

// SQLite keeps a group's address. It ends the group behind its last row, or when the statement is interrupted: perhaps
// while the GC runs. So no object of Ruby has the list.
static struct sqlite_group *group_new(struct sqlite_database *database, VALUE object)
{
    struct sqlite_group *group = malloc(sizeof(*group));
    if (!group) rb_memerror();
    *group = (struct sqlite_group){.next = database->groups, .database = database, .object = object};
    if (group->next) group->next->previous = group;
    database->groups = group;
    return group;
}

static void group_end(struct sqlite_group *group)
{
    if (group->previous) {
        group->previous->next = group->next;
    } else {
        group->database->groups = group->next;
    }
    if (group->next) group->next->previous = group->previous;
    free(group);
}

static VALUE step_ruby(VALUE argument)
{
    struct calling *calling = (struct calling *)argument;
    struct sqlite_group **group = sqlite_api.aggregate_context(calling->context, (int)sizeof(*group));
    if (!group) rb_memerror();
    if (!*group) *group = group_new(calling->function->database, rb_funcall(calling->receiver, id_new, 0));
    calling->receiver = (*group)->object;
    return call_ruby(argument);
}

static void call_step(sqlite3_context *context, int count, sqlite3_value **values)
{
    struct sqlite_function *function = sqlite_api.user_data(context);
    struct calling calling = {.function = function,
                              .context = context,
                              .count = count,
                              .values = values,
                              .receiver = function->callable,
                              .method = id_step};
    protect(&calling, step_ruby);
}

// Of no rows.
static VALUE finish_new(VALUE argument)
{
    struct calling *calling = (struct calling *)argument;
    calling->receiver = rb_funcall(calling->receiver, id_new, 0);
    return call_ruby(argument);
}

static void call_finish(sqlite3_context *context)
{
    struct sqlite_function *function = sqlite_api.user_data(context);
    struct calling calling = {
        .function = function, .context = context, .receiver = function->callable, .method = id_finish, .returns = true};
    struct sqlite_group **group = sqlite_api.aggregate_context(context, 0);
    bool begun = group && *group;
    if (begun) {
        calling.receiver = (*group)->object; // lives on here, on the stack
        group_end(*group);
    }
    protect(&calling, begun ? call_ruby : finish_new);
}

// ---- collations

struct comparing {
    struct sqlite_function *function;
    const void *texts[2];
    int lengths[2];
    int order;
};

static VALUE compare_ruby(VALUE argument)
{
    struct comparing *comparing = (struct comparing *)argument;
    VALUE texts[2];
    for (int i = 0; i < 2; i++)
        texts[i] = sqlite_column_text(comparing->texts[i], comparing->lengths[i]);
    VALUE order = rb_funcallv(comparing->function->callable, id_call, 2, texts);
    comparing->order = rb_cmpint(order, texts[0], texts[1]); // raises for nil
    return Qnil;
}

static int call_collation(void *pointer, int one, const void *first, int two, const void *second)
{
    struct comparing comparing = {.function = pointer, .texts = {first, second}, .lengths = {one, two}};
    struct sqlite_database *database = comparing.function->database;
    if (may_call(database)) {
        int state = 0;
        rb_protect(compare_ruby, (VALUE)&comparing, &state);
        database->stepping = true;
        if (!sqlite_keep(database, state)) return comparing.order;
    }
    database->misordered = true; // a comparison cannot fail: the statement goes on, and is undone
    return 0;
}

// ---- methods

static struct sqlite_function *function_new(struct sqlite_database *database, VALUE callable)
{
    struct sqlite_function *function = malloc(sizeof(*function)); // SQLite may end it while the GC runs
    if (!function) rb_memerror();
    *function = (struct sqlite_function){.next = database->functions, .database = database, .callable = callable};
    if (function->next) function->next->previous = function;
    database->functions = function;
    return function;
}

static void function_end(void *pointer)
{
    struct sqlite_function *function = pointer;
    if (function->previous) {
        function->previous->next = function->next;
    } else {
        function->database->functions = function->next;
    }
    if (function->next) function->next->previous = function->previous;
    free(function);
}

static VALUE create_body(struct sqlite_call *call)
{
    struct sqlite_database *database = call->database;
    VALUE definition = call->arguments[0]; // name, number of arguments, flags, callable, kind
    VALUE name = rb_ary_entry(definition, 0), kind = rb_ary_entry(definition, 4);
    const char *text = StringValueCStr(name);
    int count = NUM2INT(rb_ary_entry(definition, 1)), flags = NUM2INT(rb_ary_entry(definition, 2)) | SQLITE_UTF8;
    struct sqlite_function *function = function_new(database, rb_ary_entry(definition, 3));
    sqlite3 *db = database->core->db;
    int code;
    if (kind == ID2SYM(rb_intern("collation"))) {
        code = sqlite_api.create_collation_v2(db, text, SQLITE_UTF8, function, call_collation, function_end);
        if (code != SQLITE_OK) function_end(function); // only this one is not ended by SQLite where it fails
    } else if (kind == ID2SYM(rb_intern("aggregate"))) {
        code =
            sqlite_api.create_function_v2(db, text, count, flags, function, NULL, call_step, call_finish, function_end);
    } else {
        code = sqlite_api.create_function_v2(db, text, count, flags, function, call_function, NULL, NULL, function_end);
    }
    RB_GC_GUARD(name);
    return code == SQLITE_OK ? Qnil : sqlite_error_value(database, code);
}

/*
 * call-seq: database.create([name, arity, flags, callable, kind]) -> nil or error
 *
 * Defines a function (:function: callable has +call+), an aggregate (:aggregate: a class with +step+ and +finish+) or a
 * collation (:collation: callable has +call+ and returns a number).
 */
static VALUE database_create(VALUE self, VALUE definition)
{
    Check_Type(definition, T_ARRAY);
    struct sqlite_call call = {.self = self, .body = create_body, .arguments = {definition}};
    return sqlite_call(&call);
}

void sqlite_functions_define(void)
{
    id_call = rb_intern("call");
    id_new = rb_intern("new");
    id_step = rb_intern("step");
    id_finish = rb_intern("finish");
    rb_define_method(sqlite_cDatabase, "create", database_create, 1);
}
