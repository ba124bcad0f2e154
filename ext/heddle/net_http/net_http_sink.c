#include "net_http/net_http_sink.h"

static VALUE location_of(VALUE object, const char *name)
{
    return rb_funcall(rb_obj_method(object, ID2SYM(rb_intern(name))), rb_intern("source_location"), 0);
}

// IO#<< calls write, which a program may have put another in place of.
static bool writes_in_c(VALUE object)
{
    return NIL_P(location_of(object, "<<")) && NIL_P(location_of(object, "write"));
}

static bool ends_with(VALUE string, const char *end)
{
    size_t length = strlen(end);
    return RB_TYPE_P(string, T_STRING) && (size_t)RSTRING_LEN(string) >= length &&
           memcmp(RSTRING_END(string) - length, end, length) == 0;
}

// A Tempfile hands everything on to a File.
static bool hands_on_to_file(VALUE object)
{
    VALUE location = location_of(object, "<<");
    if (!RB_TYPE_P(location, T_ARRAY) || !ends_with(rb_ary_entry(location, 0), "/delegate.rb")) return false;
    VALUE file = rb_funcall(object, rb_intern("__getobj__"), 0);
    return RB_TYPE_P(file, T_FILE) && writes_in_c(file);
}

bool net_http_takes_at_once(VALUE destination)
{
    if (SPECIAL_CONST_P(destination)) return false;
    if (RB_TYPE_P(destination, T_FILE)) return writes_in_c(destination);
    const char *name = rb_obj_classname(destination);
    if (strcmp(name, "StringIO") == 0) return writes_in_c(destination);
    return strcmp(name, "Tempfile") == 0 && hands_on_to_file(destination);
}
