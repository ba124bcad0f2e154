// Counts of time spans by length. One thread at a time writes, under the GVL; any thread may read without tearing: the
// counts of one reading may then be a few events apart.
#ifndef HEDDLE_OS_HISTOGRAM_H
#define HEDDLE_OS_HISTOGRAM_H

#include "heddle.h"

#include <stdatomic.h>
#include <stdint.h>

// 1, 2 and 5 of each decade from a microsecond to 50 seconds; the last count is of what is longer.
enum { HISTOGRAM_BOUNDS = 24 };

struct histogram {
    _Atomic uint64_t counts[HISTOGRAM_BOUNDS + 1]; // of spans that are no longer than the bound of that index
    _Atomic uint64_t sum;                          // nanoseconds
};

// The upper bounds, in nanoseconds.
extern const int64_t histogram_bounds[HISTOGRAM_BOUNDS];

// `span` in nanoseconds; less than 0 counts as 0.
void histogram_add(struct histogram *histogram, int64_t span);

// Adds the counts of `more`.
void histogram_merge(struct histogram *histogram, const struct histogram *more);

// {counts: [Integer], count: Integer, sum: Float (seconds)}, the counts one by one, not cumulated.
VALUE histogram_hash(const struct histogram *histogram);

// The bounds in seconds, an Array of Floats.
VALUE histogram_bounds_array(void);

#endif
