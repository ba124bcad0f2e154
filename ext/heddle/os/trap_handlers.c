#include "os/trap_handlers.h"

#include "os/bindings.h"
#include "shims.h"

#include <signal.h>

enum { SIGNALS = 65 };

static VALUE mSignal, placeholder, default_name, names, never;
static ID id_trap, id_handle_interrupt;

// What Ruby installs for every signal that it or a handler of the program takes; NULL where no signal tells.
static void (*rubys_handler)(int);

static VALUE do_nothing(RB_BLOCK_CALL_FUNC_ARGLIST(number, unused))
{
    (void)number, (void)unused, (void)argc, (void)argv, (void)blockarg;
    return Qnil;
}

// Ruby tells the handler only to whoever sets another one. An exception in between would leave the placeholder in place, and
// a signal that Ruby handles in between would be lost.
static VALUE handler_of(int signal_number, const struct sigaction *action)
{
    VALUE number = INT2FIX(signal_number);
    VALUE handler = rb_funcall(mSignal, id_trap, 2, number, placeholder);
    rb_funcall(mSignal, id_trap, 2, number, NIL_P(handler) ? default_name : handler);
    sigaction(signal_number, action, NULL);
    return handler;
}

static VALUE look(RB_BLOCK_CALL_FUNC_ARGLIST(unused, unused_too))
{
    (void)unused, (void)unused_too, (void)argc, (void)argv, (void)blockarg;
    for (int signal_number = 1; signal_number < SIGNALS; signal_number++) {
        struct sigaction action;
        if (sigaction(signal_number, NULL, &action) != 0 || action.sa_handler != rubys_handler) continue;
        // A String that is no name is code, which Ruby evaluates.
        VALUE handler = handler_of(signal_number, &action);
        if (NIL_P(handler)) continue;
        if (!RB_TYPE_P(handler, T_STRING) || !RTEST(rb_ary_includes(names, handler))) return Qtrue;
    }
    return Qfalse;
}

static VALUE look_without_thread_interrupts(VALUE unused)
{
    (void)unused;
    return rb_block_call(rb_cThread, id_handle_interrupt, 1, &never, look, Qnil);
}

struct question {
    VALUE answer; // Qundef before there is one
    VALUE struck; // what Thread#raise or Thread#kill left in rb_errinfo, once the look was over
    int state;
};

static struct question *asked; // by the caller of trap_handlers_set, or NULL

static void answer(void *unused)
{
    (void)unused;
    struct question *question = asked;
    asked = NULL;
    if (!question) return;
    question->answer = rb_protect(look_without_thread_interrupts, Qnil, &question->state);
    if (question->state) question->struck = rb_errinfo(); // Ruby forgets it after the job
}

// In a job, during which Ruby runs no trap handler.
static bool ask(struct question *question)
{
    if (!shim_postpone(answer)) return false;
    asked = question;
    rb_thread_check_ints(); // the job is the first that is done, before anything that may raise
    // This runs in another job, or in a finalizer: Ruby runs no trap handler here, either.
    if (asked == question) answer(NULL);
    return true;
}

bool trap_handlers_set(void)
{
    if (!rubys_handler) return false;
    // Handlers run on the main thread, and might set others in the middle of the look of another thread. That one is alone
    // only where the main thread has come to its end.
    if (rb_thread_current() != rb_thread_main()) return false;
    struct question question = {.answer = Qundef, .struck = Qnil};
    if (!ask(&question)) return true; // cannot be told now: jobs are due, and the loop looks again after them
    if (!question.state) return RTEST(question.answer);
    if (RTEST(rb_obj_is_kind_of(question.struck, rb_eException))) rb_exc_raise(question.struck);
    rb_thread_kill(rb_thread_current());
    return false;
}

static VALUE name_list(void)
{
    VALUE list = rb_ary_new();
    rb_ary_push(list, default_name);
    rb_ary_push(list, rb_str_new_cstr("IGNORE"));
    rb_ary_push(list, rb_str_new_cstr("SYSTEM_DEFAULT"));
    rb_ary_push(list, rb_str_new_cstr("EXIT"));
    return list;
}

void Init_heddle_trap_handlers(void)
{
    static const int taken_by_ruby[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};
    for (size_t i = 0; i < sizeof(taken_by_ruby) / sizeof(*taken_by_ruby) && !rubys_handler; i++) {
        struct sigaction action;
        if (sigaction(taken_by_ruby[i], NULL, &action) != 0) continue;
        if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) rubys_handler = action.sa_handler;
    }
    id_trap = rb_intern("trap");
    id_handle_interrupt = rb_intern("handle_interrupt");
    rb_gc_register_mark_object(mSignal = rb_path2class("Signal"));
    rb_gc_register_mark_object(placeholder = rb_proc_new(do_nothing, Qnil));
    rb_gc_register_mark_object(default_name = rb_str_new_cstr("DEFAULT"));
    rb_gc_register_mark_object(names = name_list());
    rb_gc_register_mark_object(never = rb_hash_new());
    rb_hash_aset(never, rb_cObject, ID2SYM(rb_intern("never")));
}
