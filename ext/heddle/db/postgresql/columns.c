// Columns of a result.
#include "db/postgresql/protocol.h"

#include "references.h"

#include <string.h>

VALUE postgresql_cColumns;

static void postgresql_columns_references(void *pointer, reference_function *each)
{
    struct postgresql_columns *columns = pointer;
    each(&columns->names);
    each(&columns->types);
    for (uint32_t i = 0; i < columns->count; i++) {
        struct postgresql_type *type = &columns->columns[i].type;
        each(&type->extra);
        each(&type->convert);
    }
}

REFERENCES(postgresql_columns)

static size_t columns_size(uint32_t count, size_t length)
{
    return sizeof(struct postgresql_columns) + count * sizeof(struct postgresql_column) + length;
}

static size_t postgresql_columns_memsize(const void *pointer)
{
    const struct postgresql_columns *columns = pointer;
    return columns_size(columns->count, columns->length);
}

static const rb_data_type_t columns_type = {
    .wrap_struct_name = "Heddle::DB::PostgreSQL::Columns",
    .function = {.dmark = postgresql_columns_mark,
                 .dfree = RUBY_TYPED_DEFAULT_FREE,
                 .dsize = postgresql_columns_memsize,
                 .dcompact = postgresql_columns_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

struct postgresql_columns *postgresql_columns_of(VALUE self)
{
    return rb_check_typeddata(self, &columns_type);
}

// Whether reading the values may run Ruby code.
static bool runs_ruby(const struct postgresql_type *type)
{
    return type->kind == POSTGRESQL_KIND_UNKNOWN || type->kind >= POSTGRESQL_KIND_RUBY;
}

void postgresql_column_known(struct postgresql_protocol *protocol, VALUE self, uint32_t index)
{
    struct postgresql_columns *columns = postgresql_columns_of(self);
    struct postgresql_column *column = &columns->columns[index];
    column->type = postgresql_type_of(protocol->types, column->oid);
    RB_OBJ_WRITTEN(self, Qundef, column->type.extra);
    RB_OBJ_WRITTEN(self, Qundef, column->type.convert);
    if (protocol->textual) return;
    if (column->type.kind == POSTGRESQL_KIND_UNKNOWN) postgresql_type_wanted(protocol, column->oid);
    if (runs_ruby(&column->type)) columns->copies = true;
}

VALUE postgresql_columns_new(struct postgresql_protocol *protocol, struct pg_message message)
{
    struct pg_columns described;
    if (!pg_columns_begin(message.p, message.end, &described))
        db_protocol_violated(&protocol->base, "sent a malformed description");
    size_t length = (size_t)(message.end - message.p);
    size_t size = columns_size(described.count, length);
    VALUE self = rb_data_typed_object_zalloc(postgresql_cColumns, size, &columns_type);
    struct postgresql_columns *columns = RTYPEDDATA_DATA(self);
    columns->names = Qnil;
    RB_OBJ_WRITE(self, &columns->types, protocol->types);
    for (uint32_t i = 0; i < described.count; i++)
        columns->columns[i].type.extra = columns->columns[i].type.convert = Qnil;
    columns->count = described.count;
    columns->length = length;
    memcpy(columns->columns + columns->count, message.p, length);
    struct pg_column column;
    while (pg_columns_next(&described, &column)) {
        columns->columns[described.index - 1].oid = column.type;
        postgresql_column_known(protocol, self, described.index - 1);
    }
    if (!pg_columns_complete(&described)) db_protocol_violated(&protocol->base, "sent a malformed description");
    return self;
}

// Begins to read the description that the columns were made from.
static struct pg_columns postgresql_describe(const struct postgresql_columns *columns)
{
    const uint8_t *p = (const uint8_t *)(columns->columns + columns->count);
    struct pg_columns described;
    if (!pg_columns_begin(p, p + columns->length, &described))
        rb_bug("a description was well formed, and is not any more");
    return described;
}

/* @api private columns.descriptions: of each column name, type, table, attribute, size, modifier */
static VALUE descriptions(VALUE self)
{
    const struct postgresql_columns *columns = postgresql_columns_of(self);
    VALUE array = rb_ary_new_capa((long)columns->count);
    struct pg_columns described = postgresql_describe(columns);
    struct pg_column column;
    while (pg_columns_next(&described, &column)) {
        VALUE fields[] = {postgresql_utf8(column.name), UINT2NUM(column.type),     UINT2NUM(column.table),
                          INT2FIX(column.attribute),    INT2FIX(column.type_size), INT2NUM(column.modifier)};
        rb_ary_push(array, rb_ary_new_from_values(6, fields));
    }
    RB_GC_GUARD(self);
    return array;
}

/* @api private columns.types -> Array of Integer. OIDs of the columns' types. */
static VALUE types(VALUE self)
{
    const struct postgresql_columns *columns = postgresql_columns_of(self);
    VALUE array = rb_ary_new_capa((long)columns->count);
    for (uint32_t i = 0; i < columns->count; i++)
        rb_ary_push(array, UINT2NUM(columns->columns[i].oid));
    RB_GC_GUARD(self);
    return array;
}

/* @api private columns.type_symbols -> Array of Symbol */
static VALUE type_symbols(VALUE self)
{
    const struct postgresql_columns *columns = postgresql_columns_of(self);
    VALUE symbols = rb_ary_new_capa((long)columns->count);
    for (uint32_t i = 0; i < columns->count; i++)
        rb_ary_push(symbols, postgresql_type_symbol(columns->types, columns->columns[i].oid));
    RB_GC_GUARD(self);
    return symbols;
}

/* call-seq: columns.names -> Array of String */
static VALUE postgresql_names(VALUE self)
{
    struct postgresql_columns *columns = postgresql_columns_of(self);
    if (!NIL_P(columns->names)) return columns->names;
    VALUE array = rb_ary_new_capa((long)columns->count);
    struct pg_columns described = postgresql_describe(columns);
    struct pg_column column;
    while (pg_columns_next(&described, &column))
        rb_ary_push(array, rb_str_to_interned_str(postgresql_utf8(column.name)));
    RB_OBJ_WRITE(self, &columns->names, rb_obj_freeze(array));
    RB_GC_GUARD(self);
    return array;
}

/* call-seq: columns.size -> Integer */
static VALUE size(VALUE self)
{
    return UINT2NUM(postgresql_columns_of(self)->count);
}

void postgresql_columns_define(void)
{
    VALUE postgresql = rb_path2class("Heddle::DB::PostgreSQL");
    postgresql_cColumns = rb_define_class_under(postgresql, "Columns", rb_cObject);
    rb_gc_register_mark_object(postgresql_cColumns);
    rb_undef_alloc_func(postgresql_cColumns);
    rb_define_method(postgresql_cColumns, "names", postgresql_names, 0);
    rb_define_method(postgresql_cColumns, "descriptions", descriptions, 0);
    rb_define_method(postgresql_cColumns, "types", types, 0);
    rb_define_method(postgresql_cColumns, "type_symbols", type_symbols, 0);
    rb_define_method(postgresql_cColumns, "size", size, 0);
}
