// Shared by the fuzzers of parsers: NAME_fuzz CORPUS INPUTS SEED passes files of the corpus, each changed a little, to
// try_input, in memory of exactly their size, so that a sanitizer sees the first access beyond.
#ifndef HEDDLE_FUZZ_H
#define HEDDLE_FUZZ_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void try_input(const uint8_t *p, const uint8_t *end);

// Bytes that have a meaning for the parser.
static const uint8_t *telling;
static size_t telling_count;

// One of so many chances to cut an input is taken: 1 for a parser of short pieces, more to get further into long ones.
static uint32_t cut_one_in;

static uint64_t state;

static uint32_t random_below(uint32_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (uint32_t)(state >> 33) % limit : 0;
}

static void check(bool truth, const char *what)
{
    if (truth) return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

enum { LARGEST = 4096, MOST = 256 };
static struct seed {
    uint8_t bytes[LARGEST];
    size_t length;
} seeds[MOST];
static uint32_t seed_count;

static void load(const char *folder)
{
    DIR *directory = opendir(folder);
    check(directory != NULL, "there is no corpus");
    for (struct dirent *entry; (entry = readdir(directory)) && seed_count < MOST;) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.') continue;
        FILE *file = fopen(path, "rb");
        check(file != NULL, "a file of the corpus cannot be read");
        seeds[seed_count].length = fread(seeds[seed_count].bytes, 1, LARGEST, file);
        seed_count++;
        fclose(file);
    }
    closedir(directory);
    check(seed_count > 0, "the corpus is empty");
}

static size_t mutate(uint8_t *bytes, size_t length)
{
    for (uint32_t changes = 1 + random_below(6); changes; changes--) {
        uint32_t at = random_below((uint32_t)length + 1);
        switch (random_below(5)) {
        case 0:
            if (at < length) bytes[at] = telling[random_below((uint32_t)telling_count)];
            break;
        case 1:
            if (at < length) bytes[at] = (uint8_t)random_below(256);
            break;
        case 2: // less
            if (at < length) {
                memmove(bytes + at, bytes + at + 1, length - at - 1);
                length--;
            }
            break;
        case 3: // more
            if (length < LARGEST) {
                memmove(bytes + at + 1, bytes + at, length - at);
                bytes[at] = telling[random_below((uint32_t)telling_count)];
                length++;
            }
            break;
        default:
            if (random_below(cut_one_in) == 0) length = at;
            break;
        }
    }
    return length;
}

static void try_copy(const uint8_t *bytes, size_t length)
{
    uint8_t *input = malloc(length ? length : 1);
    memcpy(input, bytes, length);
    try_input(input, input + length);
    free(input);
}

static int fuzz(int argc, char **argv, const void *tells, size_t count, uint32_t cuts)
{
    cut_one_in = cuts;
    telling = tells;
    telling_count = count;
    check(argc == 4, "usage: NAME_fuzz CORPUS INPUTS SEED");
    state = strtoull(argv[3], NULL, 10) * 2654435761u + 88172645463325252ull;
    load(argv[1]);
    for (uint32_t i = 0; i < seed_count; i++)
        try_copy(seeds[i].bytes, seeds[i].length);
    uint64_t inputs = strtoull(argv[2], NULL, 10);
    static uint8_t bytes[LARGEST + 1];
    for (uint64_t i = 0; i < inputs; i++) {
        const struct seed *seed = &seeds[random_below(seed_count)];
        memcpy(bytes, seed->bytes, seed->length);
        try_copy(bytes, mutate(bytes, seed->length));
    }
    printf("%s: %llu inputs from %u files\n", argv[0], (unsigned long long)inputs, seed_count);
    return 0;
}

#endif
