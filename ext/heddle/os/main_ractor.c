#include "os/main_ractor.h"

#include "heddle.h"

#include <ruby/ractor.h>

static rb_ractor_local_key_t key; // has a value in the main Ractor only

bool in_main_ractor(void)
{
    return rb_ractor_local_storage_ptr(key);
}

void Init_heddle_main_ractor(void)
{
    key = rb_ractor_local_storage_ptr_newkey(NULL);
    rb_ractor_local_storage_ptr_set(key, &key);
}
