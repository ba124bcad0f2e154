/* The bodies that this server sends: one pattern, plain, in chunks, or compressed. Knows no socket. */
#ifndef HEDDLE_SERVER_BODY_H
#define HEDDLE_SERVER_BODY_H

#include <stddef.h>
#include <stdint.h>

/* Bytes to send: `length` bytes, starting at `start`, of data that repeats after `period` bytes. */
struct span {
    const char *bytes;
    size_t period;
    uint64_t start, length;
};

enum { BODY_SPANS = 4, BODY_SMALL = 128 };

/* A body in pieces, some of which lie in its own `small`: it must not be copied. */
struct body {
    struct span spans[BODY_SPANS];
    int count;
    uint64_t length; /* of all spans */
    size_t small_length;
    char small[BODY_SMALL];
};

/* Lines of 16 bytes, each its own offset modulo 1 MiB as 15 hexadecimal digits. */
enum { PATTERN_SIZE = 1 << 20 };
extern char body_pattern[PATTERN_SIZE];
/* Makes the pattern and its other forms; call it once, before anything else here. */
void body_make_pattern(void);

/* Chunks of 16 KiB, a common size of servers' buffers. */
enum { BODY_CHUNK = 16384 };
/* gzip stores a size in 32 bits. */
#define BODY_LARGEST_GZIP UINT64_C(0xffffffff)

void body_none(struct body *body);
/* `bytes` bytes of the pattern. */
void body_plain(struct body *body, uint64_t bytes);
/* The same in chunks (RFC 9112 7.1), including the last chunk. */
void body_chunked(struct body *body, uint64_t bytes);
/* The same compressed 8 to 3 (RFC 1951, 1952), at most BODY_LARGEST_GZIP bytes of the pattern. */
void body_gzip(struct body *body, uint64_t bytes);

#endif
