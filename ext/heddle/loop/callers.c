#include "loop/callers.h"

#include <ruby/debug.h>
#include <string.h>

// Frames to search: the hook itself, hooks of schedulers that inherit from ours and call super, and the waiting method.
// When an exception leaves kernel_sleep and Mutex#sleep reacquires its Mutex on the way out, newer Rubies still have
// the frames of kernel_sleep there.
enum { FRAMES = 16 };

enum caller { NOBODY_KNOWN, KERNEL_SLEEP, MUTEX_SLEEP, MUTEX_LOCK, FIXED_SLEEP, OWNER_OF_CHILD, PROCESS_WAIT };

static VALUE cMutex;

static enum caller caller_at(VALUE frame)
{
    static const struct {
        const char *name;
        enum caller caller;
    } known[] = {
        {"Kernel#sleep", KERNEL_SLEEP},
        {"Kernel.sleep", KERNEL_SLEEP},
        {"Thread::Mutex#sleep", MUTEX_SLEEP},
        {"Thread::ConditionVariable#wait", MUTEX_SLEEP}, // newer Rubies bypass Mutex#sleep
        {"Thread::Mutex#lock", MUTEX_LOCK},
        {"Thread::Mutex#synchronize", MUTEX_LOCK},
        {"Monitor#enter", MUTEX_LOCK},
        {"Monitor#synchronize", MUTEX_LOCK},
        {"Heddle::RubyFixes::MutexSleep#sleep", FIXED_SLEEP},
        {"IO#close", OWNER_OF_CHILD},
        {"IO#close_read", OWNER_OF_CHILD},
        {"IO#close_write", OWNER_OF_CHILD},
        {"IO.popen", OWNER_OF_CHILD},
        {"Kernel#`", OWNER_OF_CHILD},
        {"Kernel.`", OWNER_OF_CHILD},
        {"Kernel#system", OWNER_OF_CHILD},
        {"Kernel.system", OWNER_OF_CHILD},
        {"Process.wait", PROCESS_WAIT},
        {"Process.wait2", PROCESS_WAIT},
        {"Process.waitpid", PROCESS_WAIT},
        {"Process.waitpid2", PROCESS_WAIT},
        {"Process.waitall", PROCESS_WAIT},
        {"Process::Status.wait", PROCESS_WAIT},
    };
    VALUE name = rb_profile_frame_qualified_method_name(frame);
    if (!RB_TYPE_P(name, T_STRING)) return NOBODY_KNOWN;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (strcmp(StringValueCStr(name), known[i].name) == 0) return known[i].caller;
    }
    return NOBODY_KNOWN;
}

// The innermost known caller. A Mutex#lock inside our own Mutex#sleep counts as Mutex#sleep.
static enum caller caller_of_hook(void)
{
    VALUE frames[FRAMES];
    int lines[FRAMES];
    int count = rb_profile_frames(0, FRAMES, frames, lines);
    for (int i = 0; i < count; i++) {
        enum caller caller = caller_at(frames[i]);
        if (caller == MUTEX_LOCK && i + 1 < count && caller_at(frames[i + 1]) == FIXED_SLEEP) return MUTEX_SLEEP;
        if (caller != NOBODY_KNOWN) return caller;
    }
    return NOBODY_KNOWN;
}

bool called_by_kernel_sleep(void)
{
    return caller_of_hook() == KERNEL_SLEEP;
}

bool called_by_owner_of_child(void)
{
    return caller_of_hook() == OWNER_OF_CHILD;
}

bool is_mutex(VALUE blocker)
{
    return blocker && RTEST(rb_obj_is_kind_of(blocker, cMutex));
}

bool called_by_reacquire(VALUE blocker)
{
    return is_mutex(blocker) && caller_of_hook() == MUTEX_SLEEP;
}

void Init_heddle_callers(void)
{
    rb_gc_register_mark_object(cMutex = rb_path2class("Thread::Mutex"));
}
