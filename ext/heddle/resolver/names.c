#include "resolver/names.h"

#include "loop/without_wait.h"
#include "resolver/hosts_file.h"
#include "resolver/lookup_wait.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static VALUE eResolution; // Socket::ResolutionError, SocketError before Ruby 3.3

VALUE names_error(int error, int system_error, const char *call)
{
    if (error == EAI_SYSTEM && system_error) return rb_syserr_new(system_error, call);
    VALUE message = rb_sprintf("%s: %s", call, gai_strerror(error));
    VALUE exception = rb_exc_new_str(eResolution, message);
    rb_ivar_set(exception, rb_intern("error_code"), INT2NUM(error)); // as Ruby does
    return exception;
}

// ---- one look-up

struct asking {
    struct lookup_wait waiter;
    struct lookup *lookup;
    VALUE (*result)(const struct answer *answer);
};

static VALUE ask_body(VALUE argument)
{
    struct asking *asking = (struct asking *)argument;
    lookup_wait_submit(&asking->waiter, asking->lookup);
    struct lookup *lookups[LOOKUP_WAIT_MOST] = {asking->lookup};
    struct pollfd room;
    const struct answer *answer;
    while (!(answer = lookup_answer(asking->lookup)))
        lookup_wait_any(&asking->waiter, &room, 0, DEADLINE_NEVER, lookups);
    return asking->result(answer);
}

static VALUE ask_end(VALUE argument)
{
    struct asking *asking = (struct asking *)argument;
    lookup_end(asking->lookup);
    lookup_wait_close(&asking->waiter);
    return Qnil;
}

static VALUE names_ask(struct loop *loop, struct lookup *lookup, VALUE (*result)(const struct answer *answer))
{
    if (!lookup) rb_memerror();
    struct asking asking = {.waiter = {.loop = loop}, .lookup = lookup, .result = result};
    return rb_ensure(ask_body, (VALUE)&asking, ask_end, (VALUE)&asking);
}

// ---- names to addresses

static VALUE texts_of(const struct addresses *addresses)
{
    VALUE texts = rb_ary_new();
    for (size_t i = 0; i < addresses->count; i++) {
        char text[NI_MAXHOST];
        address_text(&addresses->list[i], text);
        if (text[0]) rb_ary_push(texts, rb_str_new_cstr(text));
    }
    return texts;
}

static VALUE addresses_found(const struct answer *answer)
{
    if (answer->error == 0) return texts_of(answer->addresses);
    if (answer->error == EAI_NONAME) return Qnil; // makes Ruby raise its error for an unknown name
    rb_exc_raise(names_error(answer->error, answer->system_error, "getaddrinfo"));
}

static VALUE take_texts(VALUE argument)
{
    return texts_of((struct addresses *)argument);
}

static VALUE free_addresses(VALUE argument)
{
    free((struct addresses *)argument);
    return Qnil;
}

// The addresses if no look-up is needed, or NULL. NULL for a name with both families: only getaddrinfo knows their
// order.
static struct addresses *known_addresses(const char *name)
{
    struct addresses *known = addresses_numeric(name);
    if (known || !(known = hosts_file_addresses(name))) return known;
    if (known->list[0].any.sa_family == known->list[known->count - 1].any.sa_family) return known;
    free(known);
    return NULL;
}

VALUE names_addresses(struct loop *loop, VALUE host)
{
    const char *name = StringValueCStr(host);
    struct addresses *known = known_addresses(name);
    if (known) {
        VALUE texts = rb_ensure(take_texts, (VALUE)known, free_addresses, (VALUE)known);
        loop_use_budget(loop);
        return texts;
    }
    return names_ask(loop, lookup_name(name, AF_UNSPEC), addresses_found);
}

// ---- addresses to names

static VALUE name_found(const struct answer *answer)
{
    if (answer->error) rb_exc_raise(names_error(answer->error, answer->system_error, "getnameinfo"));
    return rb_assoc_new(rb_str_new_cstr(answer->host), rb_str_new_cstr(answer->service));
}

VALUE names_of_address(struct loop *loop, VALUE address, int flags)
{
    StringValue(address);
    return names_ask(
        loop, lookup_address((const struct sockaddr *)RSTRING_PTR(address), (socklen_t)RSTRING_LEN(address), flags),
        name_found);
}

/*
 * call-seq: Heddle.resolver_cache = seconds or nil
 *
 * How long answers to look-ups are kept, in all threads. Within that time a name is not looked up again, nor is a name
 * that does not exist. nil, the default, keeps no answers. At most 1024 names are kept. Setting it drops all kept
 * answers.
 *
 * Applies to look-ups by tasks, and to connects in a plain thread inside Heddle.deadline. Answers from the hosts file
 * are not kept: the file is read again when it changes.
 *
 * Raises ArgumentError for a negative time, TypeError for an object that is not a number.
 */
static VALUE set_resolver_cache(VALUE self, VALUE seconds)
{
    (void)self;
    resolver_keep(NIL_P(seconds) ? 0 : deadline_span(seconds));
    return seconds;
}

/*
 * call-seq: Heddle.resolver_cache -> Float or nil
 *
 * How many seconds answers to look-ups are kept; nil if they are not kept.
 */
static VALUE resolver_cache(VALUE self)
{
    (void)self;
    int64_t caches = resolver_caches();
    if (caches == 0) return Qnil;
    return DBL2NUM(caches == DEADLINE_NEVER ? HUGE_VAL : (double)caches / 1e9);
}

void Init_heddle_names(void)
{
    VALUE socket = rb_path2class("Socket");
    ID resolution = rb_intern("ResolutionError");
    eResolution =
        rb_const_defined(socket, resolution) ? rb_const_get(socket, resolution) : rb_path2class("SocketError");
    rb_gc_register_mark_object(eResolution);
    rb_define_singleton_method(heddle_module, "resolver_cache=", set_resolver_cache, 1);
    rb_define_singleton_method(heddle_module, "resolver_cache", resolver_cache, 0);
}
