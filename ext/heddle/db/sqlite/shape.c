// The names and declared types of a statement's columns. Few programs ask for them, and most statements run once. So
// a Shape keeps SQLite's bytes, and makes Strings of them on the first call.
#include "db/sqlite/link.h"

#include <ruby/encoding.h>
#include <string.h>

static VALUE cShape;

struct shape {
    VALUE names, declared; // Arrays; 0 until the first call
    size_t size;
    int columns;
    char texts[]; // of each column the name, then the declared type; each is KNOWN, bytes and NUL, or UNKNOWN
};

enum { UNKNOWN = 0, KNOWN = 1 };

static void sqlite_shape_mark(void *pointer)
{
    const struct shape *shape = pointer;
    rb_gc_mark_movable(shape->names);
    rb_gc_mark_movable(shape->declared);
}

static void sqlite_shape_compact(void *pointer)
{
    struct shape *shape = pointer;
    shape->names = rb_gc_location(shape->names);
    shape->declared = rb_gc_location(shape->declared);
}

static size_t sqlite_shape_memsize(const void *pointer)
{
    return sizeof(struct shape) + ((const struct shape *)pointer)->size;
}

static const rb_data_type_t shape_type = {
    .wrap_struct_name = "Heddle::DB::SQLite::Shape",
    .function = {.dmark = sqlite_shape_mark,
                 .dfree = RUBY_DEFAULT_FREE,
                 .dsize = sqlite_shape_memsize,
                 .dcompact = sqlite_shape_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static size_t size_of(const char *text)
{
    return text ? strlen(text) + 2 : 1;
}

static char *put(char *to, const char *text)
{
    *to = text ? KNOWN : UNKNOWN;
    if (text) memcpy(to + 1, text, size_of(text) - 1);
    return to + size_of(text);
}

VALUE sqlite_shape_new(sqlite3_stmt *at, int columns)
{
    size_t size = 0;
    for (int i = 0; i < columns; i++)
        size += size_of(sqlite_api.column_name(at, i)) + size_of(sqlite_api.column_decltype(at, i));
    VALUE self = rb_data_typed_object_zalloc(cShape, sizeof(struct shape) + size, &shape_type);
    struct shape *shape = RTYPEDDATA_DATA(self);
    shape->size = size;
    shape->columns = columns;
    char *to = shape->texts;
    for (int i = 0; i < columns; i++)
        to = put(put(to, sqlite_api.column_name(at, i)), sqlite_api.column_decltype(at, i));
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

static struct shape *with_texts(VALUE self)
{
    struct shape *shape = rb_check_typeddata(self, &shape_type);
    if (shape->declared) return shape;
    VALUE names = rb_ary_new_capa(shape->columns), declared = rb_ary_new_capa(shape->columns);
    const char *text = shape->texts;
    for (int i = 0; i < shape->columns; i++) {
        rb_ary_push(names, string_of(text));
        text = next_text(text);
        rb_ary_push(declared, string_of(text));
        text = next_text(text);
    }
    RB_OBJ_WRITE(self, &shape->names, rb_obj_freeze(names));
    RB_OBJ_WRITE(self, &shape->declared, rb_obj_freeze(declared));
    return shape;
}

/* call-seq: shape.names -> Array of String */
static VALUE names(VALUE self)
{
    return with_texts(self)->names;
}

/* call-seq: shape.declared -> Array of String or nil: the types that the tables declare; nil for an expression */
static VALUE declared(VALUE self)
{
    return with_texts(self)->declared;
}

void sqlite_shape_init(void)
{
    cShape = rb_define_class_under(rb_path2class("Heddle::DB::SQLite"), "Shape", rb_cObject);
    rb_gc_register_mark_object(cShape);
    rb_undef_alloc_func(cShape);
    rb_define_method(cShape, "names", names, 0);
    rb_define_method(cShape, "declared", declared, 0);
}
