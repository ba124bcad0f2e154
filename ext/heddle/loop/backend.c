#include "loop/backend.h"

#include <errno.h>
#include <string.h>

#ifdef HEDDLE_HAS_LIBURING
extern const struct backend backend_uring;
#endif
#ifdef HEDDLE_HAS_EPOLL
extern const struct backend backend_epoll;
#endif
extern const struct backend backend_poll;

// Best first.
static const struct backend *const built[] = {
#ifdef HEDDLE_HAS_LIBURING
    &backend_uring,
#endif
#ifdef HEDDLE_HAS_EPOLL
    &backend_epoll,
#endif
    &backend_poll,
};

enum { BUILT = sizeof(built) / sizeof(built[0]) };

static int verdict(size_t i)
{
    static int verdicts[BUILT];
    static bool known[BUILT];
    if (!known[i]) {
        int error = built[i]->probe();
        // A shortage of descriptors says nothing about the kernel's support, and may end soon.
        if (error == EMFILE || error == ENFILE)
            rb_syserr_fail(error, "heddle: no file descriptor left to probe the kernel for a backend");
        verdicts[i] = error;
        known[i] = true;
    }
    return verdicts[i];
}

VALUE backend_available_names(void)
{
    VALUE names = rb_ary_new();
    for (size_t i = 0; i < BUILT; i++) {
        if (verdict(i) == 0) rb_ary_push(names, rb_str_new_cstr(built[i]->name));
    }
    return names;
}

VALUE backend_refusals(void)
{
    VALUE refusals = rb_hash_new();
    for (size_t i = 0; i < BUILT; i++) {
        if (verdict(i) == 0) continue;
        rb_hash_aset(refusals, rb_str_new_cstr(built[i]->name), rb_syserr_new(verdict(i), NULL));
    }
    return refusals;
}

static VALUE list_of_names(void)
{
    return rb_ary_join(backend_available_names(), rb_str_new_cstr(", "));
}

static const struct backend *forced(const char *name)
{
    for (size_t i = 0; i < BUILT; i++) {
        if (strcmp(built[i]->name, name) != 0) continue;
        int error = verdict(i);
        if (error == 0) return built[i];
        rb_raise(heddle_eBackendUnavailable,
                 "HEDDLE_BACKEND=%s: this kernel refuses that backend (%s). Unset HEDDLE_BACKEND, or set it to one of: "
                 "%" PRIsVALUE,
                 name, strerror(error), list_of_names());
    }
    if (strcmp(name, "uring") == 0 || strcmp(name, "epoll") == 0) {
        rb_raise(
            heddle_eBackendUnavailable,
            "HEDDLE_BACKEND=%s: heddle was built without that backend (for uring, install liburing's headers and build "
            "again). Available here: %" PRIsVALUE,
            name, list_of_names());
    }
    rb_raise(rb_eArgError, "HEDDLE_BACKEND=%s: no such backend. Available here: %" PRIsVALUE, name, list_of_names());
}

const struct backend *backend_choose(void)
{
    if (deadline_simulated()) return &backend_poll; // its answers come in an order that does not depend on the kernel
    const char *name = getenv("HEDDLE_BACKEND");
    if (name && *name) return forced(name);
    for (size_t i = 0; i < BUILT; i++) {
        if (verdict(i) == 0) return built[i];
    }
    rb_raise(heddle_eBackendUnavailable, "this kernel allows none of the backends that heddle was built with");
}

const struct backend *backend_after(const struct backend *failed)
{
    for (size_t i = 0; i + 1 < BUILT; i++) {
        if (built[i] == failed) return built[i + 1];
    }
    return NULL;
}
