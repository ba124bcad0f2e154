// For code that has several steps, each to be made whatever another one raises, and that raises only at its end.
#ifndef HEDDLE_PROTECT_H
#define HEDDLE_PROTECT_H

#include <ruby.h>
#include <stdbool.h>

// Each try that fails has taken another interrupt, and signals may come faster than a call ends.
enum { PROTECTED_TRIES = 100 };

struct protected_step {
    VALUE (*body)(VALUE);
    VALUE argument;
};

static inline VALUE protect_nothing(VALUE unused)
{
    return unused;
}

static inline VALUE protect_errinfo(VALUE argument)
{
    const struct protected_step *step = (const struct protected_step *)argument;
    return rb_ensure(protect_nothing, Qnil, step->body, step->argument);
}

// Like rb_protect, but `state` may be that of an earlier step, for rb_jump_tag: it stays, and $! with it, unless this
// step raises, too. Otherwise a `rescue` in this step would clear $!, and rb_jump_tag without one crashes Ruby. A plain
// rb_set_errinfo would not do: what a Thread#kill or a throw keeps in $!, it refuses.
static inline void protect_next(VALUE (*body)(VALUE), VALUE argument, int *state)
{
    struct protected_step step = {body, argument};
    int raised = 0;
    if (*state) {
        rb_protect(protect_errinfo, (VALUE)&step, &raised);
    } else {
        rb_protect(body, argument, &raised);
    }
    if (raised) *state = raised;
}

// Calls a step until it is done, however many interrupts end it before.
static inline void protect_until(bool (*done)(VALUE), VALUE (*body)(VALUE), VALUE argument, int *state)
{
    for (int i = 0; i < PROTECTED_TRIES && !done(argument); i++)
        protect_next(body, argument, state);
}

#endif
