#include "net_http/net_http_garbage.h"

#include <stdlib.h>

// Segments are garbage as soon as a block is done with them, and the GC frees them by tens of MiB at once. glibc would give that
// memory back each time, and each page of it costs a fault when it comes again. From the largest block that was mapped by itself and
// freed, up to 32 MiB, malloc learns how much to keep (see mallopt(3), M_MMAP_THRESHOLD): this one teaches it, once.
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

// The GC begins when some 32 MiB came, and then marks and frees bit by bit, each time that objects need room. Bodies are few objects and large
// ones: the next 32 MiB come on top, as new memory, each page of it with a fault, before the first are free. So a collection that is
// still under way when 4 MiB more came is ended; the GC itself does no other once the next 32 MiB are full.
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
    if (!RTEST(rb_gc_disable())) rb_gc_enable(); // the former ends it, and says whether somebody else had done the same
    ended = true;
}

void net_http_given(size_t length)
{
    enum { LARGE = 16384 }; // of smaller ones come as many objects as have a collection go on by itself
    if (length < LARGE) return;
    keep_freed_memory(length);
    end_collection(length);
}
