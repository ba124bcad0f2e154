#include "net_http/http_flavour.h"

#include "net_http/http_methods.h"

// Few, and never taken away: sockets of a flavour that was switched off live on.
static struct http_flavour *flavours;

struct http_flavour *http_flavour_of_shadow(VALUE klass)
{
    struct http_flavour *flavour = flavours;
    while (flavour && flavour->shadow != klass)
        flavour = flavour->next;
    return flavour;
}

static struct http_flavour *flavour_by(VALUE object, size_t member)
{
    for (struct http_flavour *flavour = flavours; flavour; flavour = flavour->next) {
        VALUE klass = *(VALUE *)((char *)flavour + member);
        if (klass && RTEST(rb_obj_is_kind_of(object, klass))) return flavour; // 0: not described yet
    }
    return NULL;
}

struct http_flavour *http_flavour_of_http(VALUE object)
{
    return flavour_by(object, offsetof(struct http_flavour, http));
}

struct http_flavour *http_flavour_of_request(VALUE object)
{
    return flavour_by(object, offsetof(struct http_flavour, request));
}

bool http_flavour_knows_request(const struct http_flavour *flavour, VALUE request)
{
    return !NIL_P(rb_hash_lookup(flavour->known_requests, CLASS_OF(request)));
}

static void mark(void *pointer)
{
    struct http_flavour *flavour = pointer;
    for (VALUE *value = &flavour->shadow; value <= &flavour->request_fields; value++)
        rb_gc_mark(*value); // pinned: their addresses are compared
}

static size_t memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct http_flavour);
}

static const rb_data_type_t flavour_type = {
    .wrap_struct_name = "Heddle::NetHTTP::Flavour",
    .function = {.dmark = mark, .dsize = memsize},
};

static VALUE allocate(VALUE klass)
{
    http_io_know_sockets();
    struct http_flavour *flavour = calloc(1, sizeof *flavour);
    if (!flavour) rb_memerror();
    VALUE self = TypedData_Wrap_Struct(klass, &flavour_type, flavour);
    rb_gc_register_mark_object(self);
    flavour->segment = 1 << 20;
    flavour->next = flavours;
    flavours = flavour;
    return self;
}

static struct http_flavour *flavour_of(VALUE self)
{
    return rb_check_typeddata(self, &flavour_type);
}

struct member {
    const char *name;
    size_t at;
};

#define MEMBER(name)                               \
    {                                              \
#name, offsetof(struct http_flavour, name) \
    }

static const struct member values[] = {
    MEMBER(shadow),
    MEMBER(http),
    MEMBER(read_timeout),
    MEMBER(write_timeout),
    MEMBER(open_timeout),
    MEMBER(bad_response),
    MEMBER(read_limit_exceeded),
    MEMBER(ssl_socket),
    MEMBER(code_to_object),
    MEMBER(unknown_response),
    MEMBER(code_class_to_object),
    MEMBER(request),
    MEMBER(known_requests),
    MEMBER(response_template),
    MEMBER(request_template),
    MEMBER(request_fields),
    MEMBER(response),
    MEMBER(known_responses),
};

static const struct member flags[] = {
    MEMBER(enabled),          MEMBER(io_pristine),        MEMBER(response_pristine),
    MEMBER(request_pristine), MEMBER(transport_pristine), MEMBER(blank_ends),
    MEMBER(folds_skip_empty), MEMBER(inflates),           MEMBER(upload_pristine),
    MEMBER(making_pristine),
};

// flavour.set(name, value): private to lib/heddle/net_http.
static VALUE set(VALUE self, VALUE name, VALUE value)
{
    struct http_flavour *flavour = flavour_of(self);
    const char *wanted = rb_id2name(rb_sym2id(name));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (strcmp(values[i].name, wanted) == 0) {
            *(VALUE *)((char *)flavour + values[i].at) = NIL_P(value) ? 0 : value;
            return value;
        }
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (strcmp(flags[i].name, wanted) == 0) {
            *(bool *)((char *)flavour + flags[i].at) = RTEST(value);
            return value;
        }
    }
    if (strcmp("segment", wanted) != 0) rb_raise(rb_eArgError, "a flavour has no %s", wanted);
    flavour->segment = NUM2SIZET(value);
    return value;
}

static VALUE fast(VALUE self)
{
    return ULL2NUM(flavour_of(self)->fast);
}

static VALUE fallbacks(VALUE self)
{
    static const char *const names[HTTP_FALLBACKS] = {"disabled", "override", "debug_output",
                                                      "io",       "buffered", "arguments"};
    VALUE counts = rb_hash_new();
    for (int i = 0; i < HTTP_FALLBACKS; i++) {
        uint64_t count = flavour_of(self)->fallbacks[i];
        if (count) rb_hash_aset(counts, ID2SYM(rb_intern(names[i])), ULL2NUM(count));
    }
    return counts;
}

void Init_heddle_http_flavour(VALUE net_http)
{
    VALUE klass = rb_define_class_under(net_http, "Flavour", rb_cObject);
    rb_define_alloc_func(klass, allocate);
    rb_define_method(klass, "set", set, 2);
    rb_define_method(klass, "fast", fast, 0);
    rb_define_method(klass, "fallbacks", fallbacks, 0);
    http_methods_define(klass);
}
