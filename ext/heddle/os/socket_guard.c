// Heddle::SocketGuard: shuts a socket down at a deadline, whatever Ruby's threads are doing.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/deadline.h"
#include "os/fork.h"
#include "os/main_ractor.h"
#include "os/native_thread.h"

// A C extension that waits for its socket while it holds the GVL stops every Ruby thread, including any that could
// raise at a deadline. So a thread that Ruby does not know shuts the socket down; the extension's wait then fails.

// Nanoseconds: the thread ends this long after the last call began, if no guarded call is running.
static const int64_t IDLE = 1000000000;

struct guard {
    struct guard *next;
    int descriptor; // a duplicate: the original may be closed at any time, and its number reused
    deadline_t deadline;
    bool listed;
    atomic_bool cut; // read without the lock
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct guard *guards; // few: one for each running call
    deadline_t last_begun;
    bool running;
    unsigned fork_count;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void socket_guard_prepare(void)
{
    pthread_mutex_init(&watch.lock, NULL);
    native_condition_init(&watch.changed);
}

// A child of fork lacks the thread; the guarded calls of other threads belong to the parent.
static void discard_parents_thread(void)
{
    if (watch.fork_count == fork_count()) return;
    socket_guard_prepare();
    for (struct guard *guard = watch.guards; guard; guard = guard->next)
        guard->listed = false;
    watch.guards = NULL;
    watch.running = false;
    watch.fork_count = fork_count();
}

// In a child of fork `listed` may be set for a guard that is not in the list: the fork came between the two stores.
static void unlist(struct guard *guard)
{
    if (!guard->listed) return;
    struct guard **link = &watch.guards;
    while (*link && *link != guard)
        link = &(*link)->next;
    if (*link) *link = guard->next;
    guard->listed = false;
}

// Ends every wait for the socket at once, in any thread.
static void cut(struct guard *guard)
{
    guard->cut = true;
    if (guard->descriptor >= 0) shutdown(guard->descriptor, SHUT_RDWR);
}

static deadline_t cut_those_due(void)
{
    deadline_t now = deadline_now(), earliest = DEADLINE_NEVER;
    for (struct guard *guard = watch.guards, *next; guard; guard = next) {
        next = guard->next;
        if (guard->deadline <= now) {
            cut(guard);
            unlist(guard);
        } else if (guard->deadline < earliest) {
            earliest = guard->deadline;
        }
    }
    return earliest;
}

static void *watch_them(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&watch.lock);
    for (;;) {
        deadline_t until = cut_those_due();
        if (!watch.guards) until = watch.last_begun + IDLE;
        if (!watch.guards && deadline_now() >= until) break;
        native_condition_wait(&watch.changed, &watch.lock, until);
    }
    watch.running = false;
    pthread_mutex_unlock(&watch.lock);
    return NULL;
}

static int socket_guard_start_thread(void)
{
    int error = native_thread_start(watch_them, 0);
    watch.running = error == 0;
    return error;
}

// ---- the object

static void let_go(struct guard *guard)
{
    discard_parents_thread();
    pthread_mutex_lock(&watch.lock);
    unlist(guard);
    int descriptor = guard->descriptor;
    guard->descriptor = -1;
    pthread_mutex_unlock(&watch.lock);
    if (descriptor >= 0) close(descriptor);
}

static void socket_guard_release(void *pointer)
{
    if (main_ractor_releases(pointer, socket_guard_release)) return;
    let_go(pointer);
    xfree(pointer);
}

static size_t socket_guard_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct guard);
}

static const rb_data_type_t guard_type = {
    .wrap_struct_name = "Heddle::SocketGuard",
    .function = {.dfree = socket_guard_release, .dsize = socket_guard_memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE socket_guard_allocate(VALUE klass)
{
    struct guard *guard;
    VALUE self = TypedData_Make_Struct(klass, struct guard, &guard_type, guard);
    guard->descriptor = -1;
    return self;
}

static struct guard *guard_of(VALUE self)
{
    return rb_check_typeddata(self, &guard_type);
}

/*
 * call-seq: Heddle::SocketGuard.new(descriptor, seconds) -> guard
 *
 * Shuts the socket down, for reading and writing, when +seconds+ (nil for never) are over, unless #release is called
 * first. The guard holds a duplicate of the descriptor until then.
 *
 * Raises ArgumentError if the guard has a socket already, SystemCallError if the descriptor cannot be duplicated or no
 * native thread can be started.
 *
 * @api private
 */
static VALUE socket_guard_initialize(VALUE self, VALUE descriptor, VALUE seconds)
{
    struct guard *guard = guard_of(self);
    int number = NUM2INT(descriptor);
    int64_t span = deadline_span(seconds);
    if (guard->descriptor >= 0)
        rb_raise(rb_eArgError, "this Heddle::SocketGuard has a socket already: make another guard");
    discard_parents_thread();
    guard->cut = false;
    deadline_t now = deadline_now();
    guard->deadline = deadline_after(now, span);
    guard->descriptor = fcntl(number, F_DUPFD_CLOEXEC, 3);
    if (guard->descriptor < 0) rb_sys_fail("cannot duplicate the socket to be guarded");
    if (guard->deadline == DEADLINE_NEVER) return self;
    pthread_mutex_lock(&watch.lock);
    watch.last_begun = now;
    int error = watch.running ? 0 : socket_guard_start_thread();
    if (error == 0) {
        guard->listed = true;
        guard->next = watch.guards;
        watch.guards = guard;
        pthread_cond_signal(&watch.changed);
    }
    pthread_mutex_unlock(&watch.lock);
    if (error) rb_syserr_fail(error, "cannot start the thread that guards sockets");
    return self;
}

/*
 * call-seq: guard.cut -> guard
 *
 * Shuts the socket down now, unless it was released.
 *
 * @api private
 */
static VALUE cut_now(VALUE self)
{
    struct guard *guard = guard_of(self);
    discard_parents_thread();
    pthread_mutex_lock(&watch.lock);
    unlist(guard);
    cut(guard);
    pthread_mutex_unlock(&watch.lock);
    return self;
}

/*
 * call-seq: guard.cut? -> true or false
 *
 * Returns whether this guard has shut the socket down.
 *
 * @api private
 */
static VALUE cut_p(VALUE self)
{
    return guard_of(self)->cut ? Qtrue : Qfalse;
}

/*
 * call-seq: guard.release -> guard
 *
 * Releases the socket. After this returns, the guard cannot shut the socket down any more.
 *
 * @api private
 */
static VALUE release_now(VALUE self)
{
    let_go(guard_of(self));
    return self;
}

/*
 * Document-class: Heddle::SocketGuard
 *
 * Shuts a socket down at a deadline, whatever Ruby's threads are doing.
 *
 * @api private
 */
void Init_heddle_socket_guard(void)
{
    socket_guard_prepare();
    VALUE cGuard = rb_define_class_under(heddle_module, "SocketGuard", rb_cObject);
    rb_define_alloc_func(cGuard, socket_guard_allocate);
    rb_define_method(cGuard, "initialize", socket_guard_initialize, 2);
    // For code that must hold the guard before it has the socket: SocketGuard.allocate, then watch.
    rb_define_method(cGuard, "watch", socket_guard_initialize, 2);
    rb_define_method(cGuard, "cut", cut_now, 0);
    rb_define_method(cGuard, "cut?", cut_p, 0);
    rb_define_method(cGuard, "release", release_now, 0);
}
