#include "loop/callers.h"

#include <ruby/debug.h>
#include <string.h>

// The hook itself, those of schedulers that inherit from ours and call super, and the caller with its own.
enum { FRAMES = 8 };

static VALUE cMutex;

struct callers {
    VALUE frames[FRAMES];
    int count;
    int next;
};

static bool is_hook(VALUE frame)
{
    VALUE name = rb_profile_frame_method_name(frame);
    if (!RB_TYPE_P(name, T_STRING)) return false;
    return strcmp(StringValueCStr(name), "block") == 0 || strcmp(StringValueCStr(name), "kernel_sleep") == 0;
}

// Stands behind the frames of the hook. Where an exception has left kernel_sleep, and Mutex#sleep takes its Mutex again on the
// way out, newer Rubies have the frame of kernel_sleep there still.
static struct callers callers_of_hook(void)
{
    struct callers callers = {.next = 0};
    int lines[FRAMES];
    callers.count = rb_profile_frames(0, FRAMES, callers.frames, lines);
    while (callers.next < callers.count && is_hook(callers.frames[callers.next]))
        callers.next++;
    return callers;
}

// Whether the next caller has that name. Steps behind it if so.
static bool next_is(struct callers *callers, const char *name)
{
    if (callers->next >= callers->count) return false;
    VALUE found = rb_profile_frame_qualified_method_name(callers->frames[callers->next]);
    if (!RB_TYPE_P(found, T_STRING) || strcmp(StringValueCStr(found), name) != 0) return false;
    callers->next++;
    return true;
}

bool called_by_kernel_sleep(void)
{
    struct callers callers = callers_of_hook();
    return next_is(&callers, "Kernel#sleep") || next_is(&callers, "Kernel.sleep");
}

bool called_by_relock(VALUE blocker)
{
    if (!blocker || !RTEST(rb_obj_is_kind_of(blocker, cMutex))) return false;
    struct callers callers = callers_of_hook();
    if (next_is(&callers, "Thread::Mutex#sleep") || next_is(&callers, "Thread::ConditionVariable#wait")) return true;
    return next_is(&callers, "Thread::Mutex#lock") && next_is(&callers, "Heddle::Compat::MutexSleep#sleep");
}

void Init_heddle_callers(void)
{
    rb_gc_register_mark_object(cMutex = rb_path2class("Thread::Mutex"));
}
