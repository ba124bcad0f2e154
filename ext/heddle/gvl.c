#include "gvl.h"

#include "budget.h"
#include "shims.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

static const int64_t SLOW = 1000000;        // nanoseconds to regain the GVL that somebody else must have used
static const int64_t LOOK = 200000;         // how long a look may take
static const int64_t REMEMBER = 1000000000; // then one wait finds out anew: the other thread may be done

// Of the process, guarded by the GVL.
static bool looking = true; // unless it was switched off
static deadline_t contended_until;
static struct {
    uint64_t releases; // by us: Ruby's own methods count nowhere
    uint64_t looks;    // with the GVL, where releasing it would have been slow
    uint64_t slow;     // releases after which it took more than a millisecond to regain it
} counts;

// Of each thread, since its last wait.
static _Thread_local struct {
    uint32_t operations;
    size_t bytes;
} spent;

static void renew_budget(void)
{
    spent.operations = 0;
    spent.bytes = 0;
}

bool gvl_spend(size_t bytes)
{
    spent.bytes += bytes;
    if (++spent.operations < BUDGET_OPERATIONS && spent.bytes < BUDGET_BYTES) return false;
    renew_budget();
    return true;
}

bool gvl_contended(void)
{
    return looking && contended_until != 0 && deadline_now() < contended_until;
}

int gvl_poll(struct pollfd *descriptors, size_t count, int64_t span)
{
#ifdef HEDDLE_HAS_PPOLL
    struct timespec limit = {.tv_sec = span / 1000000000, .tv_nsec = span % 1000000000};
    int found = ppoll(descriptors, (nfds_t)count, span == DEADLINE_NEVER ? NULL : &limit, NULL);
#else
    int found = poll(descriptors, (nfds_t)count, deadline_milliseconds(span));
#endif
    if (found < 0) return -errno;
    for (size_t i = 0; found > 0 && i < count; i++) {
        if (descriptors[i].revents & POLLNVAL) return -EBADF;
    }
    return found;
}

// One system call that sleeps, not a hundred that find nothing: on one core the peer needs the processor to answer.
static int look(struct pollfd *descriptors, size_t count, int64_t span)
{
#ifdef HEDDLE_HAS_PPOLL
    return gvl_poll(descriptors, count, span);
#else
    deadline_t until = deadline_after(deadline_now(), span);
    int found;
    do {
        found = gvl_poll(descriptors, count, 0);
    } while (found == 0 && sched_yield() == 0 && deadline_now() < until);
    return found;
#endif
}

int gvl_look(struct pollfd *descriptors, size_t count)
{
    counts.looks++;
    return look(descriptors, count, LOOK);
}

static void regained(deadline_t over)
{
    deadline_t now = deadline_now();
    bool slow = over && now - over > SLOW; // 0: it was not run at all
    counts.releases++;
    counts.slow += slow;
    contended_until = slow ? now + REMEMBER : 0;
}

void gvl_without(VALUE io, int descriptor, VALUE (*function)(void *), void *argument, const deadline_t *over)
{
    shim_io_blocking_region(io, function, argument, descriptor);
    regained(*over);
}

struct released {
    struct gvl_wait *wait;
    int64_t span;
    int found;
    deadline_t over;
};

static VALUE poll_for_io(void *argument)
{
    struct released *released = argument;
    released->found = gvl_poll(released->wait->descriptors, released->wait->count, released->span);
    released->over = deadline_now();
    return Qnil;
}

static void *poll_alone(void *argument)
{
    poll_for_io(argument);
    return NULL;
}

static int wait_without(struct gvl_wait *wait, int64_t span)
{
    struct released released = {.wait = wait, .span = span, .found = -EINTR};
    wait->waits++;
    renew_budget();
    if (!NIL_P(wait->io)) {
        gvl_without(wait->io, wait->descriptors[0].fd, poll_for_io, &released, &released.over);
    } else {
        rb_thread_call_without_gvl(poll_alone, &released, RUBY_UBF_IO, NULL);
        regained(released.over);
    }
    return released.found;
}

int gvl_wait(struct gvl_wait *wait, int64_t span)
{
    if (span == 0) {
        wait->looks++;
        return gvl_poll(wait->descriptors, wait->count, 0);
    }
    if (!gvl_contended()) return wait_without(wait, span);
    wait->looks++;
    counts.looks++;
    int found = look(wait->descriptors, wait->count, span < LOOK ? span : LOOK);
    // Who is always answered within a look would else keep out other threads, signals and Timeout for all of a long transfer.
    rb_thread_check_ints();
    if (found != 0 && found != -EINTR) return found;
    if (span <= LOOK) return found;
    return wait_without(wait, span == DEADLINE_NEVER ? span : span - LOOK);
}

/*
 * call-seq: Heddle.spin_before_release = boolean
 *
 * Beside a thread that computes, each time that Ruby's lock is given up costs up to 100 ms. Where regaining it took more than a
 * millisecond, the next waits of plain threads, in streams and clients of Heddle's and in an accelerated Net::HTTP, first look
 * for the reply, for at most 200 microseconds, while they hold it; for a second, then one wait finds out anew. false switches
 * that off.
 */
static VALUE set_spin(VALUE self, VALUE wanted)
{
    (void)self;
    looking = RTEST(wanted);
    return wanted;
}

/* call-seq: Heddle.spin_before_release? -> true or false */
static VALUE spins_p(VALUE self)
{
    (void)self;
    return looking ? Qtrue : Qfalse;
}

/*
 * call-seq: Heddle.gvl_statistics -> Hash
 *
 * How often the process's plain threads have given up Ruby's lock in Heddle's own waits (+:releases+), how often it took more than
 * a millisecond to regain it (+:slow+), and how often they looked for a reply with the lock held (+:looks+). Ruby's own methods,
 * and schedulers', are not in it.
 */
static VALUE statistics(VALUE self)
{
    (void)self;
    VALUE hash = rb_hash_new();
    rb_hash_aset(hash, ID2SYM(rb_intern("releases")), ULL2NUM(counts.releases));
    rb_hash_aset(hash, ID2SYM(rb_intern("slow")), ULL2NUM(counts.slow));
    rb_hash_aset(hash, ID2SYM(rb_intern("looks")), ULL2NUM(counts.looks));
    return hash;
}

void Init_heddle_gvl(void)
{
    rb_define_singleton_method(heddle_module, "spin_before_release=", set_spin, 1);
    rb_define_singleton_method(heddle_module, "spin_before_release?", spins_p, 0);
    rb_define_singleton_method(heddle_module, "gvl_statistics", statistics, 0);
    // Their names before 0.1.0's release; they go with 1.0.
    VALUE singleton = rb_singleton_class(heddle_module);
    rb_define_alias(singleton, "look_first=", "spin_before_release=");
    rb_define_alias(singleton, "look_first?", "spin_before_release?");
    rb_define_alias(singleton, "lock_statistics", "gvl_statistics");
}
