#include "net_http/string.h"

#include "portable.h"
#include "shims.h"

#include <ruby/encoding.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    FIRST_RESERVE = 4 << 20,
    LARGEST_RESERVE = 16 << 20,
    LEAST_UNKNOWN = 65536, // for a body of unknown length
    LITTLE = 4096
};

static size_t smaller(size_t one, size_t other)
{
    return one < other ? one : other;
}

// ---- one String

VALUE net_http_string_new(size_t room)
{
    VALUE string = rb_str_buf_new((long)room);
    rb_enc_associate(string, rb_ascii8bit_encoding());
    return string;
}

size_t net_http_string_room(VALUE string)
{
    return rb_str_capacity(string) - (size_t)RSTRING_LEN(string);
}

// Ruby's own way to make a String larger doubles it.
void net_http_string_make_room(VALUE string, size_t room)
{
    size_t length = (size_t)RSTRING_LEN(string), more = smaller(length / 2, LARGEST_RESERVE);
    if (room > LONG_MAX - length) rb_raise(rb_eArgError, "string sizes too big");
    if (net_http_string_room(string) >= room) {
        rb_str_modify(string);
    } else {
        rb_str_modify_expand(string, (long)(room > more ? room : more));
    }
}

void net_http_string_add_length(VALUE string, size_t count)
{
    rb_str_set_len(string, RSTRING_LEN(string) + (long)count);
}

void net_http_string_trim(VALUE string)
{
    size_t length = (size_t)RSTRING_LEN(string);
    if (net_http_string_room(string) > length / 4 + LITTLE) rb_str_resize(string, (long)length);
}

// ---- a body

struct net_http_growth net_http_growth_begin(VALUE string, uint64_t length, size_t here)
{
    struct net_http_growth growth = {.string = string, .next = FIRST_RESERVE, .alone = RSTRING_LEN(string) == 0};
    if (here) {
        net_http_string_make_room(string, length > FIRST_RESERVE ? here : (size_t)length);
    } else {
        rb_str_modify(string);
    }
    return growth;
}

static size_t net_http_reserve(struct net_http_growth *growth, uint64_t left, size_t least)
{
    VALUE string = growth->string;
    if (left == UINT64_MAX) {
        net_http_string_count(least);
        net_http_string_make_room(string, least);
        return least;
    }
    size_t wanted = left < growth->next ? (size_t)left : growth->next;
    if (growth->next < LARGEST_RESERVE) growth->next *= 2;
    net_http_string_count(wanted);
    if (growth->alone && net_http_string_room(string) < wanted) {
        rb_str_modify_expand(string, (long)wanted); // room to spare would count as garbage later
    } else {
        net_http_string_make_room(string, wanted);
    }
    return wanted;
}

size_t net_http_growth_room(struct net_http_growth *growth, uint64_t left)
{
    size_t least = 1, length = (size_t)RSTRING_LEN(growth->string), room = net_http_string_room(growth->string);
    if (left == UINT64_MAX) least = length > LEAST_UNKNOWN ? smaller(length, LARGEST_RESERVE) : LEAST_UNKNOWN;
    if (room < least || room < LITTLE) return net_http_reserve(growth, left, least);
    rb_str_modify(growth->string);
    return room < left ? room : (size_t)left;
}

void net_http_growth_make_room(struct net_http_growth *growth, uint64_t left, size_t count)
{
    if (net_http_string_room(growth->string) < count) net_http_reserve(growth, left, count);
    net_http_string_make_room(growth->string, count);
}

// ---- what the GC, malloc and the kernel are told

// Segments become garbage as soon as a block is done with them, and the GC frees tens of MiB of them at once. glibc
// would return that memory each time, and each page of it would cost a fault when it is used again. malloc learns how
// much memory to keep from the largest block that was mapped by itself and freed, up to 32 MiB (see mallopt(3),
// M_MMAP_THRESHOLD): this block teaches it, once.
static void keep_freed_memory(size_t length)
{
#ifdef __GLIBC__
    enum { ENOUGH = 8 << 20, LARGEST = 31 << 20 };
    static size_t seen;
    if (seen > ENOUGH || (seen += length) <= ENOUGH) return;
    void *volatile block = malloc(LARGEST);
    free(block);
#else
    (void)length;
#endif
}

// The GC starts after some 32 MiB, and then marks and frees in small steps, each time objects need room. Bodies are few
// and large objects: the next 32 MiB come as new memory, with a fault for each page, before the first are free. So this
// ends a collection that is still running after 4 MiB more. The GC itself completes a collection only when the next 32
// MiB are full.
static void end_collection(size_t length)
{
    enum { ENOUGH = 4 << 20 };
    static size_t collections, since;
    static bool ended;
    if (rb_gc_count() != collections) {
        collections = rb_gc_count();
        since = 0;
        ended = false;
    }
    if (ended || (since += length) < ENOUGH) return;
    if (!RTEST(rb_gc_disable())) rb_gc_enable(); // rb_gc_disable ends it; true: the GC was disabled already
    ended = true;
}

void net_http_string_count(size_t length)
{
    enum { LARGE = 16384 }; // smaller Strings come as so many objects that a collection progresses by itself
    if (length < LARGE) return;
    keep_freed_memory(length);
    end_collection(length);
}

// Two thirds of a large body's cost are page faults on fresh memory. Faulting in a MiB at once before receiving into it
// costs less; where the kernel cannot do that (before Linux 5.14), the faults come one by one.
void net_http_string_populate(uint8_t *at, size_t length)
{
#ifdef HEDDLE_HAS_LINUX_MADVISE
    enum { POPULATE_WRITE = 23 }; // MADV_POPULATE_WRITE, which glibc before 2.35 does not name
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)at + page - 1) & ~(page - 1), to = (uintptr_t)(at + length);
    if (from < to) madvise((void *)from, (to - from) & ~(page - 1), POPULATE_WRITE);
#else
    (void)at, (void)length;
#endif
}
