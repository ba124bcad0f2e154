// What a C type refers to, listed once: a function NAME_references(record, each) calls `each` for every reference that
// may move, and REFERENCES(NAME) makes NAME_mark and NAME_compact of it.
#ifndef HEDDLE_REFERENCES_H
#define HEDDLE_REFERENCES_H

#include <ruby.h>

typedef void reference_function(VALUE *);

static inline void reference_mark(VALUE *reference)
{
    rb_gc_mark_movable(*reference);
}

static inline void reference_move(VALUE *reference)
{
    *reference = rb_gc_location(*reference);
}

#define REFERENCES(name)                           \
    static void name##_mark(void *record)          \
    {                                              \
        name##_references(record, reference_mark); \
    }                                              \
                                                   \
    static void name##_compact(void *record)       \
    {                                              \
        name##_references(record, reference_move); \
    }

#endif
