// The names of tasks that a trace has seen start, by their numbers. Used by the trace's native thread alone, without
// the GVL.
#ifndef HEDDLE_INSIGHT_TRACE_NAMES_H
#define HEDDLE_INSIGHT_TRACE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_name {
    struct trace_name *next; // in its bucket
    uint64_t number;
    bool ended; // the task; its last turn is still to come
    size_t length;
    char text[];
};

struct trace_names {
    struct trace_name **buckets;
    size_t bucket_count, count; // the former is a power of two, or 0
};

// Adds a name, or replaces it; returns it, or NULL without memory.
struct trace_name *trace_names_add(struct trace_names *names, uint64_t number, const char *text, size_t length);

// The name, or NULL.
struct trace_name *trace_names_find(const struct trace_names *names, uint64_t number);

void trace_names_remove(struct trace_names *names, uint64_t number);
void trace_names_free(struct trace_names *names);

#endif
