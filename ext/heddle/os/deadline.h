// Heddle's only notion of time: an absolute instant of CLOCK_MONOTONIC in nanoseconds. A timeout becomes a deadline
// once, on entry, and is never restarted.
#ifndef HEDDLE_OS_DEADLINE_H
#define HEDDLE_OS_DEADLINE_H

#include "heddle.h"

typedef int64_t deadline_t;

#define DEADLINE_NEVER INT64_MAX

deadline_t deadline_now(void);

// In a simulation (see simulation/) this clock stands still until it is moved, by the only thread. The first time that
// it would move beyond `end` it does not. `now` of DEADLINE_NEVER sets the real clock going again.
void deadline_simulate(deadline_t now, deadline_t end);
bool deadline_simulated(void);

// The real clock, also during a simulation: for native threads, whose waits no simulation ends.
deadline_t deadline_real(void);

// Moves the simulation's clock on to this instant. Returns whether it may.
bool deadline_move(deadline_t until);

// Moves it on by this span, also beyond its end: the next wait notices that.
void deadline_pass(int64_t span);

// The same clock at the kernel's last tick (1 to 10 ms ago), at a quarter of the price. For rough intervals only.
deadline_t deadline_recently(void);

// Converts a Ruby caller's seconds to a span in nanoseconds. nil, Infinity and anything beyond 292 years become
// DEADLINE_NEVER. Raises TypeError for an object that is not a number, ArgumentError for NaN and for a negative span.
int64_t deadline_span(VALUE seconds);

// For methods of Ruby's own (sleep, IO.select, IO#wait): raises Ruby's errors.
int64_t deadline_span_of_ruby(VALUE seconds);

// A span as poll(2) and epoll_wait(2) take it: milliseconds, rounded up; -1 for DEADLINE_NEVER.
int deadline_milliseconds(int64_t span);

// now + span, without overflow.
deadline_t deadline_after(deadline_t now, int64_t span);

// The span from now on. For DEADLINE_NEVER it reads no clock.
deadline_t deadline_in(int64_t span);

// The seconds left as Ruby callers get them: a Float, 0.0 after the deadline; nil for DEADLINE_NEVER.
VALUE deadline_left(deadline_t at);

#endif
