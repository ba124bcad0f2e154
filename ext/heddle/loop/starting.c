// Starts fibers and keeps idle worker fibers.
#include "loop/internals.h"

#include "loop/start.h"
#include "os/fork.h"

void step_aside(struct loop *loop, void (*enter)(struct loop *loop, void *argument), void *argument,
                enum resume_order order)
{
    park_ready((struct parking){
        .loop = loop, .span = DEADLINE_NEVER, .enter = enter, .enter_argument = argument, .order = order});
}

struct starting {
    struct wait_owner *owner;
    VALUE fiber;
    VALUE argument;
};

static void enter_new(struct loop *loop, void *argument)
{
    const struct starting *starting = argument;
    loop->owner = starting->owner;
    if (loop->measuring) measure_start(loop);
    switch_to(loop, starting->fiber, starting->argument);
}

void loop_start(struct loop *loop, struct wait_owner *owner, VALUE fiber, VALUE argument, enum resume_order order)
{
    struct starting starting = {.owner = owner, .fiber = fiber, .argument = argument};
    step_aside(loop, enter_new, &starting, order);
}

struct continuing {
    struct wait_owner *owner;
    VALUE fiber;
};

static struct loop_wait *take_idle(struct loop *loop, struct wait_owner *owner)
{
    struct loop_wait *worker = loop->idle;
    loop->idle = worker->next;
    loop->idle_count--;
    worker->next = NULL;
    worker->owner = owner;
    return worker;
}

// Only now, when nothing can raise any more, does the worker fiber leave the list.
static void enter_idle(struct loop *loop, void *argument)
{
    struct continuing *continuing = argument;
    struct loop_wait *worker = take_idle(loop, continuing->owner);
    worker->state = WAIT_RUNNING;
    continuing->fiber = worker->fiber;
    switch_to(loop, worker->fiber, Qnil);
}

VALUE loop_continue_idle(struct loop *loop, struct wait_owner *owner, enum resume_order order)
{
    struct continuing continuing = {.owner = owner};
    step_aside(loop, enter_idle, &continuing, order);
    return continuing.fiber;
}

void loop_queue_idle(struct loop *loop, struct wait_owner *owner)
{
    ready_push(loop, take_idle(loop, owner));
}

static VALUE idle_body(VALUE argument)
{
    struct parking *parking = (struct parking *)argument;
    struct loop *loop = parking->loop;
    parking->wait->next = loop->idle;
    loop->idle = parking->wait;
    loop->idle_count++;
    switch_away(loop, parking->wait);
    return Qnil;
}

static VALUE idle_end(VALUE argument)
{
    struct parking *parking = (struct parking *)argument;
    struct loop *loop = parking->loop;
    if (parking->forks != fork_count()) return Qnil; // in a child: the record belongs to the parent
    if (parking->wait->state == WAIT_READY) ready_remove(loop, parking->wait);
    if (parking->wait->state == WAIT_PARKED) { // an exception was raised in it
        struct loop_wait **link = &loop->idle;
        while (*link != parking->wait)
            link = &(*link)->next;
        *link = parking->wait->next;
        loop->idle_count--;
    }
    wait_release(&loop->poller.waits, parking->wait);
    return Qnil;
}

void loop_idle(struct loop *loop)
{
    struct parking parking = {.loop = loop, .forks = fork_count()};
    parking.wait = wait_acquire(&loop->poller.waits, WAIT_IDLE);
    parking.wait->owner = loop->system;
    parking.wait->fiber = rb_fiber_current();
    rb_ensure(idle_body, (VALUE)&parking, idle_end, (VALUE)&parking);
}
