#include "os/deadline.h"

#include <math.h>
#include <time.h>

#define NANOSECONDS 1000000000LL

static deadline_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (deadline_t)now.tv_sec * NANOSECONDS + now.tv_nsec;
}

static deadline_t simulated = DEADLINE_NEVER, simulation_end;

void deadline_simulate(deadline_t now, deadline_t end)
{
    simulated = now;
    simulation_end = end;
}

bool deadline_move(deadline_t until)
{
    bool may = until != DEADLINE_NEVER && until <= simulation_end;
    if (may && until > simulated) simulated = until;
    if (!may) simulation_end = DEADLINE_NEVER; // what the caller raises now has the time that it takes to clean up
    return may;
}

void deadline_pass(int64_t span)
{
    simulated += span;
}

bool deadline_simulated(void)
{
    return simulated != DEADLINE_NEVER;
}

deadline_t deadline_real(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

deadline_t deadline_now(void)
{
    return simulated != DEADLINE_NEVER ? simulated : deadline_real();
}

deadline_t deadline_recently(void)
{
    if (simulated != DEADLINE_NEVER) return simulated;
#ifdef HEDDLE_HAS_COARSE_CLOCK
    return read_clock(CLOCK_MONOTONIC_COARSE);
#else
    return read_clock(CLOCK_MONOTONIC);
#endif
}

static int64_t span_of_float(double seconds)
{
    if (isnan(seconds)) rb_raise(rb_eArgError, "a time span cannot be NaN: pass seconds, or nil to wait without limit");
    if (seconds < 0) rb_raise(rb_eArgError, "a time span must not be negative: got %g seconds", seconds);
    double nanoseconds = ceil(seconds * 1e9);
    return nanoseconds >= 9.2e18 ? DEADLINE_NEVER : (int64_t)nanoseconds;
}

int64_t deadline_span(VALUE seconds)
{
    if (NIL_P(seconds)) return DEADLINE_NEVER;
    if (FIXNUM_P(seconds)) {
        long whole = FIX2LONG(seconds);
        if (whole < 0) rb_raise(rb_eArgError, "a time span must not be negative: got %ld seconds", whole);
        return whole > INT64_MAX / NANOSECONDS ? DEADLINE_NEVER : (int64_t)whole * NANOSECONDS;
    }
    // Like Kernel#sleep: accepts numbers, and objects with a divmod.
    if (!RTEST(rb_obj_is_kind_of(seconds, rb_cNumeric))) {
        if (!rb_respond_to(seconds, rb_intern("divmod"))) {
            rb_raise(rb_eTypeError, "can't convert %" PRIsVALUE " into a time span: pass seconds as a number, or nil",
                     rb_obj_class(seconds));
        }
        VALUE parts = rb_funcall(seconds, rb_intern("divmod"), 1, INT2FIX(1));
        seconds = rb_funcall(rb_ary_entry(parts, 0), '+', 1, rb_ary_entry(parts, 1));
    }
    return span_of_float(NUM2DBL(seconds));
}

int64_t deadline_span_of_ruby(VALUE seconds)
{
    if (NIL_P(seconds) || (FIXNUM_P(seconds) && FIX2LONG(seconds) >= 0)) return deadline_span(seconds);
    bool number = RTEST(rb_obj_is_kind_of(seconds, rb_cNumeric));
    if (!number || !RTEST(rb_funcall(seconds, rb_intern(">="), 1, INT2FIX(0)))) rb_time_interval(seconds); // NaN, too
    return deadline_span(seconds);
}

int deadline_milliseconds(int64_t span)
{
    if (span == DEADLINE_NEVER) return -1;
    int64_t rounded_up = (span + 999999) / 1000000;
    return rounded_up > INT32_MAX ? INT32_MAX : (int)rounded_up;
}

deadline_t deadline_after(deadline_t now, int64_t span)
{
    return span >= DEADLINE_NEVER - now ? DEADLINE_NEVER : now + span;
}

deadline_t deadline_in(int64_t span)
{
    return span == DEADLINE_NEVER ? DEADLINE_NEVER : deadline_after(deadline_now(), span);
}

VALUE deadline_left(deadline_t at)
{
    if (at == DEADLINE_NEVER) return Qnil;
    int64_t left = at - deadline_now();
    return DBL2NUM(left > 0 ? (double)left / 1e9 : 0.0);
}
