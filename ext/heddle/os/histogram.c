#include "os/histogram.h"

#define MICROSECOND  INT64_C(1000)
#define DECADE(unit) (unit), 2 * (unit), 5 * (unit)

const int64_t histogram_bounds[HISTOGRAM_BOUNDS] = {DECADE(MICROSECOND),           DECADE(10 * MICROSECOND),
                                                    DECADE(100 * MICROSECOND),     DECADE(1000 * MICROSECOND),
                                                    DECADE(10000 * MICROSECOND),   DECADE(100000 * MICROSECOND),
                                                    DECADE(1000000 * MICROSECOND), DECADE(10000000 * MICROSECOND)};

// The index of the first bound that is not less, or HISTOGRAM_BOUNDS.
static int bound_of(int64_t span)
{
    int first = 0, count = HISTOGRAM_BOUNDS;
    while (count > 0) {
        int half = count / 2;
        if (histogram_bounds[first + half] < span) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

// The only writer: a plain addition, without a locked instruction.
static void add(_Atomic uint64_t *number, uint64_t more)
{
    atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + more, memory_order_relaxed);
}

void histogram_add(struct histogram *histogram, int64_t span)
{
    if (span < 0) span = 0;
    add(&histogram->counts[bound_of(span)], 1);
    add(&histogram->sum, (uint64_t)span);
}

void histogram_merge(struct histogram *histogram, const struct histogram *more)
{
    for (int i = 0; i <= HISTOGRAM_BOUNDS; i++)
        add(&histogram->counts[i], atomic_load_explicit(&more->counts[i], memory_order_relaxed));
    add(&histogram->sum, atomic_load_explicit(&more->sum, memory_order_relaxed));
}

VALUE histogram_hash(const struct histogram *histogram)
{
    VALUE hash = rb_hash_new(), counts = rb_ary_new();
    uint64_t all = 0;
    for (int i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        uint64_t count = atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
        all += count;
        rb_ary_push(counts, ULL2NUM(count));
    }
    uint64_t sum = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
    rb_hash_aset(hash, ID2SYM(rb_intern("counts")), counts);
    rb_hash_aset(hash, ID2SYM(rb_intern("count")), ULL2NUM(all));
    rb_hash_aset(hash, ID2SYM(rb_intern("sum")), DBL2NUM((double)sum / 1e9));
    return hash;
}

VALUE histogram_bounds_array(void)
{
    VALUE bounds = rb_ary_new();
    for (int i = 0; i < HISTOGRAM_BOUNDS; i++)
        rb_ary_push(bounds, DBL2NUM((double)histogram_bounds[i] / 1e9));
    return bounds;
}
