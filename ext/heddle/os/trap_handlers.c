#include "os/trap_handlers.h"

#include "shims.h"

#include <signal.h>

enum { SIGNALS = 65 };

static VALUE mSignal, placeholder, default_name, names, never;
static ID id_trap, id_handle_interrupt;

// The function that Ruby installs for every signal that Ruby or a handler of the program takes; NULL if no signal shows
// it.
static void (*rubys_handler)(int);

static VALUE do_nothing(RB_BLOCK_CALL_FUNC_ARGLIST(number, unused))
{
    (void)number, (void)unused, (void)argc, (void)argv, (void)blockarg;
    return Qnil;
}

// Ruby returns the handler only when another one is set. An exception between the two calls would leave the placeholder
// in place, and a signal that Ruby handles between them would be lost.
static VALUE handler_of(int signal_number, const struct sigaction *action)
{
    VALUE number = INT2FIX(signal_number);
    VALUE handler = rb_funcall(mSignal, id_trap, 2, number, placeholder);
    rb_funcall(mSignal, id_trap, 2, number, NIL_P(handler) ? default_name : handler);
    sigaction(signal_number, action, NULL);
    return handler;
}

static VALUE trap_handlers_look(RB_BLOCK_CALL_FUNC_ARGLIST(unused, unused_too))
{
    (void)unused, (void)unused_too, (void)argc, (void)argv, (void)blockarg;
    for (int signal_number = 1; signal_number < SIGNALS; signal_number++) {
        struct sigaction action;
        if (sigaction(signal_number, NULL, &action) != 0 || action.sa_handler != rubys_handler) continue;
        // A String that is not a name is code, which Ruby evaluates.
        VALUE handler = handler_of(signal_number, &action);
        if (NIL_P(handler)) continue;
        if (!RB_TYPE_P(handler, T_STRING) || !RTEST(rb_ary_includes(names, handler))) return Qtrue;
    }
    return Qfalse;
}

static VALUE look_without_thread_interrupts(VALUE unused)
{
    (void)unused;
    return rb_block_call(rb_cThread, id_handle_interrupt, 1, &never, trap_handlers_look, Qnil);
}

struct question {
    VALUE answer; // Qundef until answered
    VALUE error;  // what Thread#raise or Thread#kill left in rb_errinfo after the search
    int state;
};

static struct question *asked; // by the caller of trap_handlers_set, or NULL

static void trap_handlers_answer(void *unused)
{
    (void)unused;
    struct question *question = asked;
    asked = NULL;
    if (!question) return;
    question->answer = rb_protect(look_without_thread_interrupts, Qnil, &question->state);
    if (question->state) question->error = rb_errinfo(); // Ruby clears it after the job
}

// Answers the question in a postponed job, during which Ruby runs no trap handler.
static bool trap_handlers_ask(struct question *question)
{
    if (!shim_postpone(trap_handlers_answer)) return false;
    asked = question;
    rb_thread_check_ints(); // the job comes first, before anything that may raise
    // Already inside another job or a finalizer: Ruby runs no trap handler here, either.
    if (asked == question) trap_handlers_answer(NULL);
    return true;
}

bool trap_handlers_set(void)
{
    if (!rubys_handler) return false;
    // Handlers run on the main thread, and might set others while another thread searches. A thread other than the main
    // one is alone only after the main thread has ended.
    if (rb_thread_current() != rb_thread_main()) return false;
    struct question question = {.answer = Qundef, .error = Qnil};
    if (!trap_handlers_ask(&question)) return true; // unknown now: jobs are due, and the loop asks again after them
    if (!question.state) return RTEST(question.answer);
    if (RTEST(rb_obj_is_kind_of(question.error, rb_eException))) rb_exc_raise(question.error);
    rb_thread_kill(rb_thread_current());
    return false;
}

static VALUE lock_a_mutex(VALUE unused)
{
    (void)unused;
    VALUE mutex = rb_mutex_new();
    rb_mutex_lock(mutex);
    return rb_mutex_unlock(mutex);
}

// Only a trap handler refuses a Mutex that nobody holds.
bool trap_handler_runs(void)
{
    if (rb_thread_current() != rb_thread_main()) return false;
    VALUE before = rb_errinfo();
    int state = 0;
    rb_protect(lock_a_mutex, Qnil, &state);
    rb_set_errinfo(before);
    return state;
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
