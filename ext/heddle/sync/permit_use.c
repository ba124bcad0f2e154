#include "sync/permit_use.h"

#include "os/main_ractor.h"
#include "sync/semaphore.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 64 }; // most names; classes that come later are counted as "other"

// All of the main Ractor, under its GVL.
static struct semaphore *first;
static struct permit_class *classes;
static int class_count;

// A class without a name goes by its superclass's.
static VALUE class_name(VALUE klass)
{
    VALUE name;
    while (NIL_P(name = rb_mod_name(klass)))
        klass = rb_class_superclass(klass);
    return name;
}

static struct permit_class *class_named(const char *name, size_t length)
{
    struct permit_class *found = classes;
    while (found && (strlen(found->name) != length || memcmp(found->name, name, length) != 0))
        found = found->next;
    if (found) return found;
    if (class_count == CLASSES) return classes; // "other", the last that was made
    if (++class_count == CLASSES) {
        name = "other";
        length = strlen(name);
    }
    found = calloc(1, sizeof(*found) + length + 1);
    if (!found) rb_memerror();
    memcpy(found->name, name, length);
    found->forks = fork_count();
    found->next = classes;
    classes = found;
    return found;
}

// The alloc function of a class is called in any Ractor, although its methods refuse to run there.
void permit_use_add(struct semaphore *semaphore)
{
    if (!in_main_ractor()) return;
    VALUE name = class_name(rb_obj_class(semaphore->self));
    semaphore->place.of_class = class_named(RSTRING_PTR(name), (size_t)RSTRING_LEN(name));
    semaphore->place.next = first;
    if (first) first->place.prev = semaphore;
    first = semaphore;
    RB_GC_GUARD(name);
}

void permit_use_remove(struct semaphore *semaphore)
{
    struct permit_place *place = &semaphore->place;
    if (!place->of_class) return;
    *(place->prev ? &place->prev->place.next : &first) = place->next;
    if (place->next) place->next->place.prev = place->prev;
    place->of_class = NULL;
}

static struct histogram *wait_of(struct permit_class *of_class)
{
    if (of_class->forks != fork_count()) memset(&of_class->wait, 0, sizeof(of_class->wait));
    of_class->forks = fork_count();
    return &of_class->wait;
}

void permit_use_waited(struct semaphore *semaphore, int64_t span)
{
    if (semaphore->place.of_class) histogram_add(wait_of(semaphore->place.of_class), span);
}

// A semaphore that is garbage may still be in the list: its record is read, and none of its references.
void permit_use_each(void (*each)(const struct permit_class *of_class, void *argument), void *argument)
{
    for (struct permit_class *of_class = classes; of_class; of_class = of_class->next)
        of_class->permits = of_class->taken = of_class->waiting = 0;
    for (const struct semaphore *semaphore = first; semaphore; semaphore = semaphore->place.next) {
        struct permit_class *of_class = semaphore->place.of_class;
        of_class->permits += semaphore->permits;
        if (semaphore->forks != fork_count()) continue;
        of_class->taken += semaphore->taken;
        of_class->waiting += semaphore->waiting;
    }
    for (struct permit_class *of_class = classes; of_class; of_class = of_class->next) {
        wait_of(of_class);
        each(of_class, argument);
    }
}
