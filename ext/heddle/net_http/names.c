#include "net_http/names.h"

#define IV(name)          ID iv_##name;
#define NAME(name)        ID id_##name;
#define OTHER(name, text) ID name;
NET_HTTP_VARIABLES(IV)
NET_HTTP_METHODS(NAME)
NET_HTTP_OTHERS(OTHER)
#undef IV
#undef NAME
#undef OTHER

VALUE net_http_constant(const char *text)
{
    VALUE string = rb_interned_str_cstr(text);
    rb_gc_register_mark_object(string);
    return string;
}

VALUE net_http_call_original(VALUE self, ID id, int argc, const VALUE *argv, int keywords)
{
    if (!rb_block_given_p()) return rb_funcallv_kw(self, id, argc, argv, keywords);
    return rb_block_call_kw(self, id, argc, argv, rb_yield_block, Qnil, keywords);
}

void net_http_names_define(void)
{
#define IV(name)          iv_##name = rb_intern("@" #name);
#define NAME(name)        id_##name = rb_intern(#name);
#define OTHER(name, text) name = rb_intern(text);
    NET_HTTP_VARIABLES(IV)
    NET_HTTP_METHODS(NAME)
    NET_HTTP_OTHERS(OTHER)
}
