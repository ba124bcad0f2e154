#include "os/trap_handlers.h"

#include <ruby.h>
#include <signal.h>
#include <unistd.h>

enum { SIGNALS = 65 };

static VALUE mSignal, placeholder;
static ID id_trap;
static volatile bool came[SIGNALS]; // while its handler was the placeholder

// What Ruby installs for every signal that it or a handler of the program takes; NULL where no signal tells.
static void (*rubys_handler)(int);

static VALUE note(RB_BLOCK_CALL_FUNC_ARGLIST(number, unused))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    int signal_number = NUM2INT(number);
    if (signal_number > 0 && signal_number < SIGNALS) came[signal_number] = true;
    return Qnil;
}

// Ruby tells the handler only to whoever sets another one.
static VALUE handler_of(int signal_number, const struct sigaction *action)
{
    VALUE number = INT2FIX(signal_number);
    came[signal_number] = false;
    VALUE handler = rb_funcall(mSignal, id_trap, 2, number, placeholder);
    rb_funcall(mSignal, id_trap, 2, number, NIL_P(handler) ? rb_str_new_cstr("DEFAULT") : handler);
    sigaction(signal_number, action, NULL);
    if (came[signal_number]) kill(getpid(), signal_number);
    return handler;
}

bool trap_handlers_set(void)
{
    for (int signal_number = 1; signal_number < SIGNALS && rubys_handler; signal_number++) {
        struct sigaction action;
        if (sigaction(signal_number, NULL, &action) != 0 || action.sa_handler != rubys_handler) continue;
        VALUE handler = handler_of(signal_number, &action);
        if (!NIL_P(handler) && !RB_TYPE_P(handler, T_STRING)) return true;
    }
    return false;
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
    rb_gc_register_mark_object(mSignal = rb_path2class("Signal"));
    rb_gc_register_mark_object(placeholder = rb_proc_new(note, Qnil));
}
