/* The head of an HTTP/1.x request (RFC 9112): bytes in, a struct out. Knows no socket. */
#ifndef HEDDLE_SERVER_REQUEST_H
#define HEDDLE_SERVER_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REQUEST_HEAD_LIMIT = 8192 };

struct request {
    const char *path; /* points into the parsed bytes; without the query */
    size_t path_length;
    size_t length;  /* of the whole head, including its empty line */
    bool get, head; /* the method; neither is set for other methods */
    bool post;      /* POST or PUT */
    bool minor;     /* HTTP/1.1 */
    bool keep_alive;
    bool body;               /* the head announces a body */
    bool chunked;            /* in chunks; otherwise of content_length bytes */
    uint64_t content_length; /* 0 if the head names none */
    bool expect;             /* the client waits for 100 Continue */
};

enum request_result {
    REQUEST_DONE,
    REQUEST_MORE,      /* the head is incomplete */
    REQUEST_BAD,       /* 400 */
    REQUEST_TOO_LARGE, /* 431 */
    REQUEST_VERSION    /* 505 */
};

enum request_result request_parse(const char *bytes, const char *end, struct request *request);

#endif
