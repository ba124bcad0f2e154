#include "task/cancel.h"

#include "os/fork.h"
#include "protect.h"

// A task may use the time that its shields allow.
static deadline_t end_of_shields(VALUE tasks)
{
    deadline_t latest = 0;
    for (long i = 0; i < RARRAY_LEN(tasks); i++) {
        deadline_t end = scope_shields_end(task_of(RARRAY_AREF(tasks, i))->owner.chain);
        if (end > latest) latest = end;
    }
    return latest;
}

// Forgets the task first: a warning that raises must not have the task given up again and again.
static void give_up(VALUE object, const struct cancelling *cancelling)
{
    task_abandon(task_of(object));
    VALUE backtrace = rb_funcall(object, rb_intern("backtrace"), 0);
    VALUE where =
        NIL_P(backtrace) ? rb_str_new_cstr("an unknown place") : rb_ary_join(backtrace, rb_str_new_cstr("\n\tfrom "));
    rb_warn("heddle: %" PRIsVALUE " refuses to end: it was cancelled %d times, %g s or an interrupt apart, and is "
            "still running. Heddle stops waiting for it, and its code will not run to its end. Let "
            "Heddle::Cancellation pass, and wait in `ensure` only within Heddle.shield. It is at %" PRIsVALUE,
            object, CANCEL_ROUNDS, (double)cancelling->grace / 1e9, where);
}

// However often interrupts came, a task behind a shield has not seen these cancels, and neither has a task that has not
// run since: signals may come faster than the loop gets to it.
static bool refuses(const struct task *task, const struct cancelling *cancelling)
{
    if (scope_shields_end(task->owner.chain) > deadline_now()) return false;
    return cancelling->late || !task->owner.cancel_pending || cancelling->rounds >= PROTECTED_TRIES;
}

static void give_up_those_that_refuse(VALUE tasks, const struct cancelling *cancelling)
{
    for (long i = 0; i < RARRAY_LEN(tasks); i++) {
        VALUE object = RARRAY_AREF(tasks, i);
        if (refuses(task_of(object), cancelling)) give_up(object, cancelling);
    }
}

static void wait_a_while(struct cancelling *cancelling)
{
    deadline_t until = deadline_after(deadline_now(), cancelling->grace);
    for (;;) {
        VALUE tasks = task_list_objects(cancelling->tasks);
        if (RARRAY_LEN(tasks) == 0) return;
        deadline_t now = deadline_now(), shields = end_of_shields(tasks);
        if (shields > now && until < deadline_after(shields, cancelling->grace))
            until = deadline_after(shields, cancelling->grace);
        cancelling->late = now >= until;
        if (cancelling->late) return;
        cancelling->failures = 0;
        cancelling->wait(cancelling->owner, until);
    }
}

static VALUE next_round(VALUE argument)
{
    struct cancelling *cancelling = (struct cancelling *)argument;
    VALUE tasks = task_list_objects(cancelling->tasks);
    if (cancelling->rounds >= CANCEL_ROUNDS) {
        give_up_those_that_refuse(tasks, cancelling);
    } else {
        if (!cancelling->cancelled) cancel_all(tasks, true);
        cancelling->cancelled = false;
    }
    cancelling->rounds++;
    wait_a_while(cancelling);
    return Qnil;
}

// In a child of fork the tasks are the parent's, and never end.
static bool over(const struct cancelling *cancelling)
{
    if (cancelling->forks != fork_count()) return true;
    return cancelling->tasks->count == 0;
}

// Thread#kill, Fiber#kill or a throw, which must reach its goal once the rounds are over.
struct departure {
    struct cancelling *cancelling;
    int state;
};

static VALUE depart(VALUE argument)
{
    rb_jump_tag(((struct departure *)argument)->state);
}

// Returns the state of the last exception that came meanwhile, for rb_jump_tag, and sets it as $!; or 0.
static int all_rounds(struct cancelling *cancelling);

static VALUE remaining_rounds(VALUE argument)
{
    if (all_rounds(((struct departure *)argument)->cancelling)) rb_set_errinfo(Qnil); // the departure goes first
    return Qnil;
}

// A loop, because each interrupt starts a round, and there is no limit to their number. Does not repeat rounds that
// fail before they wait: without memory, for one, that would never end.
static int all_rounds(struct cancelling *cancelling)
{
    int kept = 0;
    VALUE error = Qnil;
    while (!over(cancelling) && cancelling->failures <= CANCEL_ROUNDS) {
        int state = 0;
        cancelling->failures++;
        rb_protect(next_round, (VALUE)cancelling, &state);
        if (!state) continue;
        if (!is_exception(rb_errinfo())) {
            struct departure departure = {.cancelling = cancelling, .state = state};
            rb_ensure(depart, (VALUE)&departure, remaining_rounds, (VALUE)&departure);
        }
        kept = state;
        error = rb_errinfo();
        rb_set_errinfo(Qnil);
    }
    if (kept) rb_set_errinfo(error);
    return kept;
}

static VALUE run_rounds(VALUE argument)
{
    int state = all_rounds((struct cancelling *)argument);
    if (state) rb_jump_tag(state);
    return Qnil;
}

void cancel_and_wait(struct cancelling *cancelling)
{
    cancelling->forks = fork_count();
    // A deadline that has passed must not stop the wait for the tasks that it ends.
    deadline_shield(run_rounds, (VALUE)cancelling);
}
