// Handle: a statement of the driver's, for Ruby.
#include "client.h"

static VALUE cHandle, cColumns;
static ID id_new;

static void odbc_handle_mark(void *at)
{
    struct odbc_handle *handle = at;
    rb_gc_mark_movable(handle->client);
    rb_gc_mark_movable(handle->columns);
}

static void odbc_handle_compact(void *at)
{
    struct odbc_handle *handle = at;
    handle->client = rb_gc_location(handle->client);
    handle->columns = rb_gc_location(handle->columns);
}

static void odbc_handle_release(struct odbc_handle *handle)
{
    struct odbc_statement *statement = handle->statement;
    handle->statement = NULL;
    if (!statement) return;
    if (handle->taking)
        handle->late = statement;
    else
        odbc_statement_release(statement);
}

static void free_handle(void *at)
{
    odbc_handle_release(at);
    ruby_xfree(at);
}

static const rb_data_type_t handle_type = {
    .wrap_struct_name = "heddle_odbc_handle",
    .function = {.dmark = odbc_handle_mark, .dfree = free_handle, .dcompact = odbc_handle_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

struct odbc_handle *odbc_handle_of(VALUE handle)
{
    return rb_check_typeddata(handle, &handle_type);
}

VALUE odbc_handle_new(VALUE client)
{
    struct odbc_handle *handle;
    VALUE object = TypedData_Make_Struct(cHandle, struct odbc_handle, &handle_type, handle);
    RB_OBJ_WRITE(object, &handle->client, client);
    handle->columns = Qnil;
    handle->statement = odbc_statement_new(odbc_client_of(client)->session);
    if (!handle->statement) rb_raise(rb_eNoMemError, "no memory for a statement");
    return object;
}

// The statement, of which no job runs.
static struct odbc_statement *statement_of(VALUE self)
{
    struct odbc_handle *handle = odbc_handle_of(self);
    struct odbc_statement *statement = handle->statement;
    if (!statement) rb_raise(rb_eIOError, "this statement is closed");
    if (odbc_session_forked(statement->session) || odbc_session_busy(statement->session))
        rb_raise(rb_eThreadError, "the driver is using this statement");
    return statement;
}

/* @api private Gives the statement up: the driver frees it with its next call. */
static VALUE handle_release(VALUE self)
{
    odbc_handle_release(odbc_handle_of(self));
    return Qnil;
}

/* @api private @return [Integer] how many parameters it has */
static VALUE handle_parameters(VALUE self)
{
    return INT2FIX(statement_of(self)->parameter_count);
}

/* @api private @return [Array<Integer>] the SQL types of its parameters; 0 where the driver does not tell */
static VALUE handle_parameter_codes(VALUE self)
{
    struct odbc_statement *statement = statement_of(self);
    VALUE codes = rb_ary_new();
    for (SQLSMALLINT i = 0; i < statement->parameter_count; i++)
        rb_ary_push(codes, INT2FIX(statement->parameter_types[i].type));
    return codes;
}

static VALUE description_of(const struct odbc_client *client, const struct odbc_column *column, VALUE name)
{
    VALUE table = odbc_text(client, column->table.at, column->table.length);
    return rb_ary_new_from_args(7, name, INT2FIX(column->kind), INT2FIX(column->type), INT2FIX(column->nullable),
                                ULL2NUM(column->size), INT2FIX(column->digits), table);
}

/* @api private @return [Columns] of the current result */
static VALUE handle_columns(VALUE self)
{
    struct odbc_statement *statement = statement_of(self);
    struct odbc_handle *handle = odbc_handle_of(self);
    const struct odbc_client *client = odbc_client_of(handle->client);
    if (!NIL_P(handle->columns) && handle->description == statement->description) return handle->columns;
    VALUE names = rb_ary_new(), descriptions = rb_ary_new();
    for (SQLSMALLINT i = 0; i < statement->column_count; i++) {
        const struct odbc_column *column = &statement->columns[i];
        VALUE name = rb_str_to_interned_str(odbc_text(client, column->name.at, column->name.length));
        rb_ary_push(names, name);
        rb_ary_push(descriptions, description_of(client, column, name));
    }
    unsigned description = statement->description; // before Ruby is called: see handle_take
    VALUE columns = rb_funcall(cColumns, id_new, 2, rb_ary_freeze(names), descriptions);
    RB_OBJ_WRITE(self, &handle->columns, columns);
    handle->description = description;
    return columns;
}

struct taking {
    VALUE self;
    struct odbc_statement *statement;
    size_t limit;
};

static VALUE odbc_handle_take(VALUE argument)
{
    const struct taking *taking = (const struct taking *)argument;
    return odbc_take_rows(odbc_client_of(odbc_handle_of(taking->self)->client), taking->statement, taking->limit);
}

static VALUE take_end(VALUE self)
{
    struct odbc_handle *handle = odbc_handle_of(self);
    struct odbc_statement *late = handle->late;
    handle->taking = false;
    handle->late = NULL;
    if (late) odbc_statement_release(late);
    return Qnil;
}

/* @api private @return [Array<Array>] up to so many of the fetched rows */
static VALUE handle_take(VALUE self, VALUE limit)
{
    struct taking taking = {self, statement_of(self), NUM2SIZET(limit)};
    odbc_handle_of(self)->taking = true; // values may call Ruby, and another thread may close the statement then
    VALUE rows = rb_ensure(odbc_handle_take, (VALUE)&taking, take_end, self);
    RB_GC_GUARD(self);
    return rows;
}

/* @api private @return [Boolean] whether the current result has rows, if only none */
static VALUE handle_has_rows(VALUE self)
{
    return statement_of(self)->column_count > 0 ? Qtrue : Qfalse;
}

/* @api private @return [Integer] fetched rows that were not taken */
static VALUE handle_waiting(VALUE self)
{
    struct odbc_statement *statement = statement_of(self);
    return SIZET2NUM(statement->row_count - statement->taken);
}

/* @api private @return [Boolean] whether more rows may be fetched */
static VALUE handle_is_open(VALUE self)
{
    return statement_of(self)->open ? Qtrue : Qfalse;
}

/* @api private @return [Boolean] whether another result follows */
static VALUE handle_has_more(VALUE self)
{
    return statement_of(self)->more ? Qtrue : Qfalse;
}

/* @api private @return [Integer] rows that the statement changed */
static VALUE handle_affected(VALUE self)
{
    return LL2NUM(statement_of(self)->affected);
}

/* @api private @return [Integer] warnings of the last execution */
static VALUE handle_warnings(VALUE self)
{
    return INT2FIX(statement_of(self)->warnings);
}

void odbc_handle_define(VALUE module)
{
    cHandle = rb_define_class_under(module, "Handle", rb_cObject);
    rb_undef_alloc_func(cHandle);
    cColumns = rb_define_class_under(module, "Columns", rb_cObject);
    rb_gc_register_mark_object(cHandle);
    rb_gc_register_mark_object(cColumns);
    id_new = rb_intern("new");
    rb_define_method(cHandle, "release", handle_release, 0);
    rb_define_method(cHandle, "parameters", handle_parameters, 0);
    rb_define_method(cHandle, "parameter_codes", handle_parameter_codes, 0);
    rb_define_method(cHandle, "columns", handle_columns, 0);
    rb_define_method(cHandle, "take", handle_take, 1);
    rb_define_method(cHandle, "rows?", handle_has_rows, 0);
    rb_define_method(cHandle, "waiting", handle_waiting, 0);
    rb_define_method(cHandle, "open?", handle_is_open, 0);
    rb_define_method(cHandle, "more?", handle_has_more, 0);
    rb_define_method(cHandle, "affected", handle_affected, 0);
    rb_define_method(cHandle, "warnings", handle_warnings, 0);
}
