#include "loop/context.h"

#include "shims.h"

const rb_data_type_t loop_type = {.wrap_struct_name = "Heddle::Loop", .flags = RUBY_TYPED_FREE_IMMEDIATELY};

struct loop *loop_of(VALUE scheduler)
{
    if (RB_SPECIAL_CONST_P(scheduler)) return NULL;
    if (RBASIC_CLASS(scheduler) == heddle_cScheduler) return RTYPEDDATA_DATA(scheduler); // the common case
    if (!RB_TYPE_P(scheduler, T_DATA) || !rb_typeddata_is_kind_of(scheduler, &loop_type)) return NULL;
    return RTYPEDDATA_DATA(scheduler);
}

struct loop *loop_of_plain(VALUE scheduler)
{
    struct loop *loop = loop_of(scheduler);
    if (!loop) return NULL;
    VALUE klass = CLASS_OF(scheduler);
    return klass == heddle_cScheduler || klass == loop->plain_class ? loop : NULL;
}

struct loop *loop_entered(VALUE self)
{
    struct loop *loop = RTYPEDDATA_DATA(self); // a receiver of our own methods
    loop_enter(loop);
    return loop;
}

static struct context context_under(VALUE scheduler)
{
    return (struct context){.scheduler = scheduler, .loop = loop_of(scheduler)};
}

struct context context_of_fiber(void)
{
    return context_under(rb_fiber_scheduler_current());
}

struct context context_of_thread(void)
{
    return context_under(rb_fiber_scheduler_get());
}
