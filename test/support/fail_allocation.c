// An LD_PRELOAD library: makes one allocation of heddle.so fail, as when memory has run out. After fail_allocation(n)
// the n-th allocation from then on raises NoMemoryError, and no other does; n is 0 for none. allocations_left() is 0
// once that allocation has failed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

void rb_memerror(void) __attribute__((noreturn));

static long left;

void fail_allocation(long n)
{
    left = n;
}

long allocations_left(void)
{
    return left;
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void count(void *caller)
{
    Dl_info info;
    if (left == 0 || !dladdr(caller, &info) || !strstr(info.dli_fname, "heddle.so")) return;
    if (--left == 0) rb_memerror();
}

#define CALL(name, parameters, arguments)                           \
    void *name parameters                                           \
    {                                                               \
        static void *(*original)parameters;                         \
        if (!original) original = (void *(*)parameters)next(#name); \
        count(__builtin_return_address(0));                         \
        return original arguments;                                  \
    }

typedef void *value; // a VALUE is as wide

// Not ruby_xmalloc: Ruby compares its address to check that an extension belongs to this Ruby.
CALL(ruby_xmalloc2, (size_t number, size_t size), (number, size))
CALL(ruby_xcalloc, (size_t number, size_t size), (number, size))
CALL(ruby_xrealloc, (void *pointer, size_t size), (pointer, size))
CALL(ruby_xrealloc2, (void *pointer, size_t number, size_t size), (pointer, number, size))
// Objects of Ruby.
CALL(rb_ary_new, (void), ())
CALL(rb_ary_new_capa, (long capacity), (capacity))
CALL(rb_ary_push, (value array, value item), (array, item))
CALL(rb_assoc_new, (value first, value second), (first, second))
CALL(rb_hash_new, (void), ())
CALL(rb_hash_aset, (value hash, value key, value item), (hash, key, item))
CALL(rb_mutex_new, (void), ())
CALL(rb_exc_new_str, (value klass, value message), (klass, message))
