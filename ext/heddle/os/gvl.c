#include "os/gvl.h"

#include "os/budget.h"
#include "shims.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

static const int64_t SLOW_REGAIN = 1000000;      // nanoseconds: a slower regain means that another thread used the GVL
static const int64_t SPIN = 200000;              // nanoseconds that one spin may take
static const int64_t CONTENDED_FOR = 1000000000; // then the next wait releases the GVL at once: the thread may be done

// Shared by the whole process, guarded by the GVL.
static bool spin_allowed = true; // false after Heddle.spin_before_release = false
static deadline_t contended_until;
static struct {
    uint64_t releases; // by Heddle's waits: Ruby's own methods are not counted
    uint64_t looks;    // waits that polled with the GVL held, because releasing it had been slow
    uint64_t slow;     // releases after which it took more than a millisecond to regain it
} counts;

// Per thread, since its last wait.
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
    return spin_allowed && contended_until != 0 && deadline_now() < contended_until;
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

// One system call that sleeps instead of a hundred polls: on one core the peer needs the processor to answer.
static int spin(struct pollfd *descriptors, size_t count, int64_t span)
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

int gvl_spin(struct pollfd *descriptors, size_t count)
{
    counts.looks++;
    return spin(descriptors, count, SPIN);
}

static void regained(deadline_t over)
{
    deadline_t now = deadline_now();
    bool slow = over && now - over > SLOW_REGAIN; // 0: the function did not run
    counts.releases++;
    counts.slow += slow;
    contended_until = slow ? now + CONTENDED_FOR : 0;
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
    // Raises an interrupt that Thread.handle_interrupt holds back until a wait: Ruby would check only after the wait.
    rb_thread_check_ints();
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
    int found = spin(wait->descriptors, wait->count, span < SPIN ? span : SPIN);
    // A peer that always answers within one spin would otherwise keep other threads, signals and Timeout waiting for a
    // whole transfer.
    rb_thread_check_ints();
    if (found != 0 && found != -EINTR) return found;
    if (span <= SPIN) return found;
    return wait_without(wait, span == DEADLINE_NEVER ? span : span - SPIN);
}

/*
 * call-seq: Heddle.spin_before_release = boolean
 *
 * Beside a CPU-bound thread, each release of the GVL costs up to 100 ms. When regaining the GVL took more than a
 * millisecond, each wait of the next second first polls for the reply with the GVL held, for at most 200 microseconds.
 * Then one wait releases the GVL at once, to find out whether the other thread still computes. This concerns waits of
 * plain threads in Heddle's streams and clients and in an accelerated Net::HTTP. false switches the polling off.
 */
static VALUE set_spin(VALUE self, VALUE wanted)
{
    (void)self;
    spin_allowed = RTEST(wanted);
    return wanted;
}

/* call-seq: Heddle.spin_before_release? -> true or false */
static VALUE spins_p(VALUE self)
{
    (void)self;
    return spin_allowed ? Qtrue : Qfalse;
}

/*
 * call-seq: Heddle.gvl_statistics -> Hash
 *
 * Counts of the process's plain threads in Heddle's own waits: how often a wait released the GVL (+:releases+), how
 * often regaining the GVL took more than a millisecond (+:slow+), and how often a wait first polled with the GVL held
 * (+:looks+). Waits in Ruby's own methods and in schedulers are not counted.
 */
static VALUE gvl_statistics(VALUE self)
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
    rb_define_singleton_method(heddle_module, "gvl_statistics", gvl_statistics, 0);
    // Names from before 0.1.0; they end with 1.0.
    VALUE singleton = rb_singleton_class(heddle_module);
    rb_define_alias(singleton, "look_first=", "spin_before_release=");
    rb_define_alias(singleton, "look_first?", "spin_before_release?");
    rb_define_alias(singleton, "lock_statistics", "gvl_statistics");
}
