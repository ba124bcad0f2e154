// Defines the methods of the classes: the only file of this layer that knows all others.
#include "memcached/memcached.h"

// Called by lib/heddle/memcached.rb, once the errors are defined.
static VALUE define_memcached(VALUE module)
{
    VALUE klass = rb_const_get(module, rb_intern("Memcached"));
    VALUE server = rb_const_get(klass, rb_intern("Server"));
    memcached_define_client(klass);
    memcached_messages_init(klass);
    memcached_define_server(server);
    memcached_define_text(server);
    memcached_define_failure(klass);
    memcached_define_single(klass);
    memcached_define_multi(klass);
    return klass;
}

void Init_heddle_memcached(void)
{
    rb_define_private_method(rb_singleton_class(heddle_module), "define_memcached", define_memcached, 0);
}
