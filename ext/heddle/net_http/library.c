#include "net_http/library.h"

#include "os/main_ractor.h"

// Few, and never freed: sockets of a library that was switched off live on.
static struct net_http_library *libraries;

static struct net_http_library *first(void)
{
    return in_main_ractor() ? libraries : NULL;
}

struct net_http_library *net_http_library_of_buffered(VALUE klass)
{
    struct net_http_library *library = first();
    while (library && library->buffered != klass)
        library = library->next;
    return library;
}

static struct net_http_library *library_by(VALUE klass, size_t member)
{
    for (struct net_http_library *library = first(); library; library = library->next) {
        VALUE above = *(VALUE *)((char *)library + member);
        if (!above) continue; // not set yet
        if (klass == above || RTEST(rb_class_inherited_p(klass, above))) return library;
    }
    return NULL;
}

struct net_http_library *net_http_library_of_http(VALUE object)
{
    return library_by(CLASS_OF(object), offsetof(struct net_http_library, http));
}

struct net_http_library *net_http_library_of_http_class(VALUE klass)
{
    return library_by(klass, offsetof(struct net_http_library, http));
}

struct net_http_library *net_http_library_of_request(VALUE object)
{
    return library_by(CLASS_OF(object), offsetof(struct net_http_library, request));
}

// The hash is replaced whenever a method of the library changes, in any thread. The table of one without an owner must
// not be freed in the middle of the search.
static bool includes(VALUE known, VALUE klass)
{
    bool found = !NIL_P(rb_hash_lookup(known, klass));
    RB_GC_GUARD(known);
    return found;
}

bool net_http_library_knows_request(const struct net_http_library *library, VALUE request)
{
    return includes(library->known_requests, CLASS_OF(request));
}

bool net_http_library_knows_responses(const struct net_http_library *library, VALUE klass)
{
    return includes(library->known_responses, klass);
}

// The positive Integer under that name; 0 for any other value, and without the constant.
static size_t limit_named(VALUE mod, ID name)
{
    VALUE value = rb_const_defined_at(mod, name) ? rb_const_get_at(mod, name) : Qnil;
    return FIXNUM_P(value) && FIX2LONG(value) > 0 ? (size_t)FIX2LONG(value) : 0;
}

bool net_http_library_head_limit(const struct net_http_library *library, size_t *limit)
{
    *limit = library->limits_heads ? limit_named(library->response, id_max_response_header_length) : HTTP_HEAD;
    return *limit > 0;
}

bool net_http_library_takes_fields(const struct net_http_library *library)
{
    return !library->limits_fields || (limit_named(library->header, id_max_key_length) >= HTTP_NAME &&
                                       limit_named(library->header, id_max_field_length) >= HTTP_VALUE);
}

// ---- a new BufferedIO

struct net_http_settings net_http_settings_of(VALUE http)
{
    return (struct net_http_settings){rb_attr_get(http, iv_read_timeout), rb_attr_get(http, iv_write_timeout),
                                      rb_attr_get(http, iv_continue_timeout)};
}

// The class that the library would use now for a new connection: another thread may call disable.
static VALUE buffered_class(const struct net_http_library *library)
{
    if (rb_const_defined_at(library->http, id_buffered_io)) return rb_const_get_at(library->http, id_buffered_io);
    return rb_class_superclass(library->buffered);
}

// The same as its `new`; by that unless it is known what that does.
VALUE net_http_library_buffered(const struct net_http_library *library, VALUE io,
                                const struct net_http_settings *settings, VALUE output)
{
    VALUE klass = buffered_class(library), template = library->buffered_template;
    if (!(library->unpatched & HTTP_UNPATCHED_WRAPPING) || !template || !net_http_library_of_buffered(klass)) {
        VALUE arguments[2] = {io, rb_hash_new()};
        rb_hash_aset(arguments[1], ID2SYM(rb_intern("read_timeout")), settings->read_timeout);
        rb_hash_aset(arguments[1], ID2SYM(rb_intern("write_timeout")), settings->write_timeout);
        rb_hash_aset(arguments[1], ID2SYM(rb_intern("continue_timeout")), settings->continue_timeout);
        rb_hash_aset(arguments[1], ID2SYM(rb_intern("debug_output")), output);
        return rb_funcallv_kw(klass, id_new, 2, arguments, RB_PASS_KEYWORDS);
    }
    VALUE buffered = rb_obj_alloc(klass);
    for (long i = 0; i < RARRAY_LEN(template); i += 2) {
        ID name = rb_sym2id(RARRAY_AREF(template, i));
        VALUE value = RARRAY_AREF(template, i + 1);
        if (name == iv_io) value = io;
        if (name == iv_read_timeout) value = settings->read_timeout;
        if (name == iv_write_timeout) value = settings->write_timeout;
        if (name == iv_continue_timeout) value = settings->continue_timeout;
        if (name == iv_debug_output) value = output;
        if (name == iv_rbuf) value = rb_str_new(NULL, 0);
        rb_ivar_set(buffered, name, value);
    }
    return buffered;
}

// ---- the object

static void library_mark(void *pointer)
{
    struct net_http_library *library = pointer;
    for (VALUE *value = &library->buffered; value <= &library->buffered_template; value++)
        rb_gc_mark(*value); // pinned: their addresses are compared
}

static size_t library_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct net_http_library);
}

// Pinned: there is one for each class, and classes stay.
static const rb_data_type_t library_type = {
    .wrap_struct_name = "Heddle::NetHTTP::Library",
    .function = {.dmark = library_mark, .dsize = library_memsize},
    .flags = RUBY_TYPED_WB_PROTECTED,
};

static VALUE library_allocate(VALUE klass)
{
    struct net_http_library *library = calloc(1, sizeof *library);
    if (!library) rb_memerror();
    VALUE self = TypedData_Wrap_Struct(klass, &library_type, library);
    rb_gc_register_mark_object(self);
    library->segment = 1 << 20;
    library->next = libraries;
    libraries = library;
    return self;
}

static struct net_http_library *library_of(VALUE self)
{
    return rb_check_typeddata(self, &library_type);
}

struct member {
    const char *name;
    size_t at;
};

#define MEMBER(name)                                   \
    {                                                  \
#name, offsetof(struct net_http_library, name) \
    }

static const struct member values[] = {
    MEMBER(buffered),
    MEMBER(http),
    MEMBER(read_timeout),
    MEMBER(write_timeout),
    MEMBER(open_timeout),
    MEMBER(bad_response),
    MEMBER(read_limit_exceeded),
    MEMBER(code_to_object),
    MEMBER(unknown_response),
    MEMBER(code_class_to_object),
    MEMBER(idempotent_methods),
    MEMBER(request),
    MEMBER(known_requests),
    MEMBER(response_template),
    MEMBER(request_template),
    MEMBER(request_fields),
    MEMBER(buffered_template),
    MEMBER(response),
    MEMBER(header),
    MEMBER(known_responses),
};

// In the order of their bits.
static const char *const unpatched_names[] = {"io",        "response", "request",  "upload",
                                              "transport", "naming",   "wrapping", "initializer"};
static const struct member flags[] = {
    MEMBER(enabled),      MEMBER(blank_ends),    MEMBER(folds_skip_empty),
    MEMBER(limits_heads), MEMBER(limits_fields), MEMBER(inflates),
};

static ID unpatched_ids[sizeof unpatched_names / sizeof *unpatched_names];

static enum net_http_unpatched unpatched_named(ID name)
{
    for (unsigned i = 0; i < sizeof unpatched_ids / sizeof *unpatched_ids; i++)
        if (unpatched_ids[i] == name) return 1u << i;
    return 0;
}

static unsigned unpatched_of(VALUE groups)
{
    unsigned unpatched = 0;
    for (unsigned i = 0; i < sizeof unpatched_ids / sizeof *unpatched_ids; i++)
        if (RTEST(rb_hash_lookup(groups, ID2SYM(unpatched_ids[i])))) unpatched |= 1u << i;
    return unpatched;
}

// library.set(name, value): private to lib/heddle/net_http.
static VALUE set(VALUE self, VALUE name, VALUE value)
{
    struct net_http_library *library = library_of(self);
    const char *wanted = rb_id2name(rb_sym2id(name));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (strcmp(values[i].name, wanted) == 0) {
            RB_OBJ_WRITE(self, (VALUE *)((char *)library + values[i].at), NIL_P(value) ? 0 : value);
            return value;
        }
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (strcmp(flags[i].name, wanted) == 0) {
            *(bool *)((char *)library + flags[i].at) = RTEST(value);
            return value;
        }
    }
    if (strcmp("unpatched", wanted) == 0) {
        library->unpatched = unpatched_of(value);
    } else {
        if (strcmp("segment", wanted) != 0) rb_raise(rb_eArgError, "a library has no %s", wanted);
        library->segment = NUM2SIZET(value);
    }
    return value;
}

/* @api private The number of steps done on the fast path. */
static VALUE fast(VALUE self)
{
    return ULL2NUM(library_of(self)->fast);
}

/* @api private The number of steps that stock did, by reason. */
static VALUE fallbacks(VALUE self)
{
    static const char *const names[HTTP_FALLBACKS] = {"disabled", "override", "debug_output",
                                                      "io",       "buffered", "arguments"};
    VALUE counts = rb_hash_new();
    for (int i = 0; i < HTTP_FALLBACKS; i++) {
        uint64_t count = library_of(self)->fallbacks[i];
        if (count) rb_hash_aset(counts, ID2SYM(rb_intern(names[i])), ULL2NUM(count));
    }
    return counts;
}

// Library.singular?(object): whether an object has methods of its own.
static VALUE singular_p(VALUE self, VALUE object)
{
    (void)self;
    return RB_FL_TEST(CLASS_OF(object), RUBY_FL_SINGLETON) ? Qtrue : Qfalse;
}

// Library.exact?(object, class): whether it is an instance of the class itself, without methods of its own.
static VALUE exact_p(VALUE self, VALUE object, VALUE klass)
{
    (void)self;
    return CLASS_OF(object) == klass ? Qtrue : Qfalse;
}

// Library.http_of(http or its class, group): the library's class Net::HTTP, if the fast path may do the work of this
// group of methods (nil: of any or none) for this object, or the objects of this class; or nil.
static VALUE http_of(VALUE self, VALUE object, VALUE group)
{
    (void)self;
    struct net_http_library *library =
        RB_TYPE_P(object, T_CLASS) ? net_http_library_of_http_class(object) : net_http_library_of_http(object);
    bool does = NIL_P(group) ? library != NULL : net_http_library_does(library, unpatched_named(rb_sym2id(group)));
    return does ? library->http : Qnil;
}

void net_http_library_define(VALUE klass)
{
    for (size_t i = 0; i < sizeof unpatched_ids / sizeof *unpatched_ids; i++)
        unpatched_ids[i] = rb_intern(unpatched_names[i]);
    rb_define_alloc_func(klass, library_allocate);
    rb_define_method(klass, "set", set, 2);
    rb_define_method(klass, "fast", fast, 0);
    rb_define_method(klass, "fallbacks", fallbacks, 0);
    rb_ext_ractor_safe(true);
    rb_define_singleton_method(klass, "singular?", singular_p, 1);
    rb_define_singleton_method(klass, "exact?", exact_p, 2);
    rb_define_singleton_method(klass, "http_of", http_of, 2);
    rb_ext_ractor_safe(false);
}
