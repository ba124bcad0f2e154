#include "insight/trace_names.h"

#include <stdlib.h>
#include <string.h>

// Numbers follow each other: their lowest bits spread them evenly.
static struct trace_name **bucket_of(const struct trace_names *names, uint64_t number)
{
    return &names->buckets[number & (names->bucket_count - 1)];
}

static bool grow(struct trace_names *names)
{
    if (names->count < names->bucket_count) return true;
    struct trace_names larger = {.bucket_count = names->bucket_count ? 2 * names->bucket_count : 1024,
                                 .count = names->count};
    larger.buckets = calloc(larger.bucket_count, sizeof(*larger.buckets));
    if (!larger.buckets) return names->bucket_count > 0;
    for (size_t i = 0; i < names->bucket_count; i++) {
        for (struct trace_name *name = names->buckets[i], *next; name; name = next) {
            next = name->next;
            struct trace_name **bucket = bucket_of(&larger, name->number);
            name->next = *bucket;
            *bucket = name;
        }
    }
    free(names->buckets);
    *names = larger;
    return true;
}

struct trace_name *trace_names_add(struct trace_names *names, uint64_t number, const char *text, size_t length)
{
    if (names->bucket_count) trace_names_remove(names, number);
    struct trace_name *name = grow(names) ? malloc(sizeof(*name) + length) : NULL;
    if (!name) return NULL;
    struct trace_name **bucket = bucket_of(names, number);
    *name = (struct trace_name){.next = *bucket, .number = number, .length = length};
    memcpy(name->text, text, length);
    *bucket = name;
    names->count++;
    return name;
}

struct trace_name *trace_names_find(const struct trace_names *names, uint64_t number)
{
    if (!names->bucket_count) return NULL;
    struct trace_name *name = *bucket_of(names, number);
    while (name && name->number != number)
        name = name->next;
    return name;
}

void trace_names_remove(struct trace_names *names, uint64_t number)
{
    if (!names->bucket_count) return;
    struct trace_name **link = bucket_of(names, number);
    while (*link && (*link)->number != number)
        link = &(*link)->next;
    struct trace_name *name = *link;
    if (!name) return;
    *link = name->next;
    names->count--;
    free(name);
}

void trace_names_free(struct trace_names *names)
{
    for (size_t i = 0; i < names->bucket_count; i++) {
        for (struct trace_name *name = names->buckets[i], *next; name; name = next) {
            next = name->next;
            free(name);
        }
    }
    free(names->buckets);
    *names = (struct trace_names){0};
}
