/* A request's body: counted, and compared with the pattern (body.h). Knows no socket. */
#ifndef HEDDLE_SERVER_UPLOAD_H
#define HEDDLE_SERVER_UPLOAD_H

#include "request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum upload_place { UPLOAD_DATA, UPLOAD_SIZE, UPLOAD_SIZE_END, UPLOAD_CHUNK_END, UPLOAD_TRAILER, UPLOAD_OVER };

struct upload {
    bool minor, keep_alive; /* the request's */
    bool chunked;
    bool right;        /* the bytes so far equal those of /b/BYTES */
    uint64_t received; /* bytes of the body, without the framing of chunks */
    uint64_t left;     /* bytes left of the body or chunk */
    enum upload_place place;
    size_t line; /* bytes of the current line */
    bool digits; /* a chunk's size has begun */
};

enum upload_result { UPLOAD_MORE, UPLOAD_DONE, UPLOAD_BAD };

void upload_begin(struct upload *upload, const struct request *request);
/* Takes the bytes of the body; `taken` becomes their number. */
enum upload_result upload_take(struct upload *upload, const char *bytes, size_t length, size_t *taken);

#endif
