#include "os/main_ractor.h"

#include "heddle.h"

#include <ruby/ractor.h>
#include <stdatomic.h>
#include <stdlib.h>

static rb_ractor_local_key_t key; // has a value in the main Ractor only

bool in_main_ractor(void)
{
    return rb_ractor_local_storage_ptr(key);
}

struct swept {
    struct swept *next;
    void *record;
    void (*release)(void *);
};

static _Atomic(struct swept *) swept_elsewhere;

void main_ractor_release_swept(void)
{
    for (struct swept *each = atomic_exchange(&swept_elsewhere, NULL), *next; each; each = next) {
        next = each->next;
        each->release(each->record);
        free(each);
    }
}

bool main_ractor_releases(void *record, void (*release)(void *))
{
    if (in_main_ractor()) {
        if (atomic_load(&swept_elsewhere)) main_ractor_release_swept();
        return false;
    }
    struct swept *swept = malloc(sizeof(*swept)); // not xmalloc, which may collect
    if (!swept) return true;                      // better a leak than a damaged list
    *swept = (struct swept){atomic_load(&swept_elsewhere), record, release};
    while (!atomic_compare_exchange_weak(&swept_elsewhere, &swept->next, swept))
        continue;
    return true;
}

void Init_heddle_main_ractor(void)
{
    key = rb_ractor_local_storage_ptr_newkey(NULL);
    rb_ractor_local_storage_ptr_set(key, &key);
}
