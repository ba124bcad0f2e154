// The names and declared types of a statement's columns. Few programs ask for them, and most statements run once. So
// Columns keeps SQLite's bytes, and makes Strings of them on the first call.
#include "db/sqlite/database.h"

#include "references.h"

#include <ruby/encoding.h>
#include <string.h>

static VALUE cColumns;

struct columns {
    VALUE names, declared; // Arrays; 0 until the first call
    size_t size;
    int count;
    char texts[]; // of each column the name, then the declared type; each is KNOWN, bytes and NUL, or UNKNOWN
};

enum { UNKNOWN = 0, KNOWN = 1 };

static void sqlite_columns_references(void *pointer, reference_function *each)
{
    struct columns *columns = pointer;
    each(&columns->names);
    each(&columns->declared);
}

REFERENCES(sqlite_columns)

static size_t sqlite_columns_memsize(const void *pointer)
{
    return sizeof(struct columns) + ((const struct columns *)pointer)->size;
}

static const rb_data_type_t columns_type = {
    .wrap_struct_name = "Heddle::DB::SQLite::Columns",
    .function = {.dmark = sqlite_columns_mark,
                 .dfree = RUBY_DEFAULT_FREE,
                 .dsize = sqlite_columns_memsize,
                 .dcompact = sqlite_columns_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static size_t size_of(const char *text)
{
    return text ? strlen(text) + 2 : 1;
}

static char *sqlite_put(char *to, const char *text)
{
    *to = text ? KNOWN : UNKNOWN;
    if (text) memcpy(to + 1, text, size_of(text) - 1);
    return to + size_of(text);
}

VALUE sqlite_columns_new(sqlite3_stmt *at, int count)
{
    size_t size = 0;
    for (int i = 0; i < count; i++)
        size += size_of(sqlite_api.column_name(at, i)) + size_of(sqlite_api.column_decltype(at, i));
    VALUE self = rb_data_typed_object_zalloc(cColumns, sizeof(struct columns) + size, &columns_type);
    struct columns *columns = RTYPEDDATA_DATA(self);
    columns->size = size;
    columns->count = count;
    char *to = columns->texts;
    for (int i = 0; i < count; i++)
        to = sqlite_put(sqlite_put(to, sqlite_api.column_name(at, i)), sqlite_api.column_decltype(at, i));
    return self;
}

static const char *next_text(const char *text)
{
    return *text == KNOWN ? text + 1 + strlen(text + 1) + 1 : text + 1;
}

static VALUE string_of(const char *text)
{
    return *text == KNOWN ? rb_enc_interned_str_cstr(text + 1, rb_utf8_encoding()) : Qnil;
}

static struct columns *with_texts(VALUE self)
{
    struct columns *columns = rb_check_typeddata(self, &columns_type);
    if (columns->declared) return columns;
    VALUE names = rb_ary_new_capa(columns->count), declared = rb_ary_new_capa(columns->count);
    const char *text = columns->texts;
    for (int i = 0; i < columns->count; i++) {
        rb_ary_push(names, string_of(text));
        text = next_text(text);
        rb_ary_push(declared, string_of(text));
        text = next_text(text);
    }
    RB_OBJ_WRITE(self, &columns->names, rb_obj_freeze(names));
    RB_OBJ_WRITE(self, &columns->declared, rb_obj_freeze(declared));
    return columns;
}

/* call-seq: columns.names -> Array of String */
static VALUE sqlite_names(VALUE self)
{
    return with_texts(self)->names;
}

/* call-seq: columns.declared -> Array of String or nil: the types that the tables declare; nil for an expression */
static VALUE declared(VALUE self)
{
    return with_texts(self)->declared;
}

void sqlite_columns_define(void)
{
    cColumns = rb_define_class_under(rb_path2class("Heddle::DB::SQLite"), "Columns", rb_cObject);
    rb_gc_register_mark_object(cColumns);
    rb_undef_alloc_func(cColumns);
    rb_define_method(cColumns, "names", sqlite_names, 0);
    rb_define_method(cColumns, "declared", declared, 0);
}
