// What a simulated world (lib/heddle/simulation.rb) needs from the core: the clock, connects and look-ups, which the
// world answers. Everything else waits and moves bytes as always, on pairs of UNIX sockets.

#include "os/deadline.h"
#include "resolver/resolver.h"
#include "os/connecting.h"
#include "portable.h"
#include "os/simulated.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static VALUE world = Qnil; // answers; nil outside of a simulation
static ID id_bind, id_connect, id_connect_error, id_look_up, id_at_switch;

// ---- connects

enum { FILLING = 1 << 16 }; // bytes; more than the quarter of a send buffer beyond which Linux lets writers wait

struct request {
    ID method;
    int descriptor;
    const struct sockaddr *address;
    socklen_t length;
};

static VALUE simulation_ask(VALUE argument)
{
    const struct request *request = (const struct request *)argument;
    VALUE address = rb_str_new((const char *)request->address, request->length);
    return rb_funcall(world, request->method, 2, INT2NUM(request->descriptor), address);
}

static VALUE ask_error(VALUE argument)
{
    return rb_funcall(world, id_connect_error, 1, INT2NUM(*(const int *)argument));
}

// The callers hold descriptors and must not be left by an exception; the world keeps its own errors.
static int errno_of(VALUE (*question)(VALUE), VALUE argument)
{
    int raised = 0;
    VALUE answer = rb_protect(question, argument, &raised);
    if (!raised && FIXNUM_P(answer)) return FIX2INT(answer);
    rb_set_errinfo(Qnil);
    return EIO;
}

static int request(ID method, int descriptor, const struct sockaddr *address, socklen_t length)
{
    struct request request = {method, descriptor, address, length};
    int error = errno_of(simulation_ask, (VALUE)&request);
    errno = error;
    return error ? -1 : 0;
}

static int simulation_begin(int descriptor, const struct sockaddr *address, socklen_t length)
{
    return request(id_connect, descriptor, address, length);
}

static int bind_address(int descriptor, const struct sockaddr *address, socklen_t length)
{
    return request(id_bind, descriptor, address, length);
}

static int error_of(int descriptor)
{
    return errno_of(ask_error, (VALUE)&descriptor);
}

static const struct simulated_connects connects = {simulation_begin, bind_address, error_of};

static int new_pair(int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) return -1;
    for (int i = 0; i < 2; i++)
        portable_set_flags(ends[i]);
    return 0;
}

/*
 * call-seq: Core.replace(descriptor) -> Integer
 *
 * Puts one end of a pair of UNIX sockets in the place of an open descriptor, with a full send buffer, and returns the
 * other end.
 *
 * @api private
 */
static VALUE core_replace(VALUE self, VALUE descriptor)
{
    (void)self;
    int number = NUM2INT(descriptor), ends[2];
    if (new_pair(ends) < 0) rb_sys_fail("socketpair(2)");
    int replaced = dup2(ends[0], number), error = errno;
    close(ends[0]);
    if (replaced < 0) {
        close(ends[1]);
        rb_syserr_fail(error, "dup2(2)");
    }
    portable_set_flags(number);
    static const char filling[FILLING]; // until the world takes it, the descriptor is not writable: it is connecting
    if (send(number, filling, sizeof(filling), 0) < 0) rb_warn("heddle/simulation: send(2): %s", strerror(errno));
    return INT2NUM(ends[1]);
}

/*
 * call-seq: Core.inode(descriptor) -> Integer or nil
 *
 * By which an open file is known; nil if nothing is open there.
 *
 * @api private
 */
static VALUE core_inode(VALUE self, VALUE descriptor)
{
    (void)self;
    struct stat file;
    return fstat(NUM2INT(descriptor), &file) < 0 ? Qnil : ULL2NUM(file.st_ino);
}

// ---- look-ups

struct name_question {
    struct job *job;
    const char *host;
    int family;
};

static VALUE ask_name(VALUE argument)
{
    const struct name_question *question = (const struct name_question *)argument;
    return rb_funcall(world, id_look_up, 3, ULL2NUM((uintptr_t)question->job), rb_str_new_cstr(question->host),
                      INT2NUM(question->family));
}

static void ask_world(struct job *job, const char *host, int family)
{
    struct name_question question = {job, host, family};
    int raised = 0;
    rb_protect(ask_name, (VALUE)&question, &raised);
    if (!raised) return;
    rb_set_errinfo(Qnil);
    resolver_answer(job, EAI_FAIL, NULL);
}

/*
 * call-seq: Core.answer(question, error, addresses) -> nil
 *
 * Answers a question that the world was asked, once: with an EAI_… or 0, and with the socket addresses.
 *
 * @api private
 */
static VALUE core_answer(VALUE self, VALUE question, VALUE error, VALUE addresses)
{
    (void)self;
    Check_Type(addresses, T_ARRAY);
    size_t count = (size_t)RARRAY_LEN(addresses);
    struct job *job = (struct job *)(uintptr_t)NUM2ULL(question);
    int number = NUM2INT(error);
    struct addresses *found = NULL;
    if (!number) {
        found = calloc(1, sizeof(*found) + count * sizeof(found->list[0]));
        if (!found) rb_memerror();
        for (size_t i = 0; i < count; i++) {
            VALUE bytes = RARRAY_AREF(addresses, (long)i);
            struct socket_address *address = &found->list[found->count++];
            address->length = (socklen_t)RSTRING_LEN(bytes);
            memcpy(&address->any, RSTRING_PTR(bytes), address->length);
        }
    }
    resolver_answer(job, number, found);
    return Qnil;
}

// ---- chance

static void ask_at_switch(void)
{
    rb_funcall(world, id_at_switch, 0);
}

/*
 * call-seq: Core.at_switches = true or false
 *
 * Whether the world is asked before each switch to a fiber.
 *
 * @api private
 */
static VALUE core_at_switches(VALUE self, VALUE asked)
{
    (void)self;
    simulated_at_switch = RTEST(asked) ? ask_at_switch : NULL;
    return asked;
}

/*
 * call-seq: Core.draw(name) -> Float
 *
 * A number from 0 to 1, without 1, that depends on the seed and on the name alone.
 *
 * @api private
 */
static VALUE core_draw(VALUE self, VALUE name)
{
    (void)self;
    StringValue(name);
    return DBL2NUM((double)simulated_draw_for(RSTRING_PTR(name), (size_t)RSTRING_LEN(name)) / (double)(1LL << 53));
}

// ---- the clock

static deadline_t last_read;
static int readings; // of last_read

/*
 * call-seq: Core.enter(world, seed, now, end) -> nil
 *
 * From now on the world answers, and chance depends on the seed. The clock stands at `now`, and moves no further than
 * `end`, in nanoseconds.
 *
 * @api private
 */
static VALUE core_enter(VALUE self, VALUE answering, VALUE seed, VALUE now, VALUE end)
{
    (void)self;
    simulated_seed(NUM2ULL(seed));
    readings = 0;
    last_read = DEADLINE_NEVER;
    deadline_simulate(NUM2LL(now), NUM2LL(end));
    world = answering;
    connecting_simulate(&connects);
    resolver_simulate(ask_world);
    return Qnil;
}

/*
 * call-seq: Core.leave -> nil
 *
 * @api private
 */
static VALUE core_leave(VALUE self)
{
    (void)self;
    world = Qnil;
    simulated_at_switch = NULL;
    deadline_simulate(DEADLINE_NEVER, DEADLINE_NEVER);
    connecting_simulate(NULL);
    resolver_simulate(NULL);
    return Qnil;
}

/*
 * call-seq: Core.now -> Integer
 *
 * Nanoseconds.
 *
 * @api private
 */
static VALUE core_now(VALUE self)
{
    (void)self;
    return LL2NUM(deadline_now());
}

/*
 * call-seq: Core.read -> Integer
 *
 * The same. After many readings a microsecond passes with each, so that a loop that waits for a time ends. Not with the
 * first ones: what a program does once, when it is new, must not move the rest.
 *
 * @api private
 */
static VALUE core_read(VALUE self)
{
    enum { MANY = 1000 };
    (void)self;
    deadline_t read = deadline_now();
    readings = read == last_read ? readings + 1 : 0;
    if (readings >= MANY && deadline_simulated()) {
        deadline_pass(1000);
        readings = MANY - 1;
    }
    last_read = deadline_now();
    return LL2NUM(read);
}

void Init_heddle_simulation(void)
{
    id_bind = rb_intern("bind");
    id_connect = rb_intern("connect");
    id_connect_error = rb_intern("connect_error");
    id_at_switch = rb_intern("at_switch");
    id_look_up = rb_intern("look_up");
    rb_gc_register_address(&world);
    VALUE core = rb_define_module_under(rb_define_class_under(heddle_module, "Simulation", rb_cObject), "Core");
    rb_define_singleton_method(core, "enter", core_enter, 4);
    rb_define_singleton_method(core, "leave", core_leave, 0);
    rb_define_singleton_method(core, "at_switches=", core_at_switches, 1);
    rb_define_singleton_method(core, "draw", core_draw, 1);
    rb_define_singleton_method(core, "now", core_now, 0);
    rb_define_singleton_method(core, "read", core_read, 0);
    rb_define_singleton_method(core, "replace", core_replace, 1);
    rb_define_singleton_method(core, "inode", core_inode, 1);
    rb_define_singleton_method(core, "answer", core_answer, 3);
}
