// An LD_PRELOAD library: after refuse_realloc(1), realloc has no memory for heddle.so; refusals() is how often.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static int refusing;
static long refused;

void refuse_realloc(int on)
{
    refusing = on;
}

long refusals(void)
{
    return refused;
}

void *realloc(void *pointer, size_t size)
{
    static void *(*original)(void *, size_t);
    Dl_info info;
    if (!original) original = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    if (refusing && dladdr(__builtin_return_address(0), &info) && strstr(info.dli_fname, "heddle.so")) {
        refused++;
        return NULL;
    }
    return original(pointer, size);
}
