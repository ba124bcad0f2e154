// Defines the methods of the classes: the only file of this layer that knows all others.
#include "memcached/memcached.h"

// Called by lib/heddle/memcached.rb, once the errors are defined.
static VALUE define_memcached(VALUE module)
{
    VALUE klass = rb_const_get(module, rb_intern("Memcached"));
    VALUE server = rb_const_get(klass, rb_intern("Server"));
    memcached_client_define(klass);
    memcached_messages_define(klass);
    memcached_server_define(server);
    memcached_text_define(server);
    memcached_failure_define(klass);
    memcached_single_define(klass);
    memcached_multi_define(klass);
    return klass;
}

void Init_heddle_memcached(void)
{
    rb_define_private_method(rb_singleton_class(heddle_module), "define_memcached", define_memcached, 0);
}
