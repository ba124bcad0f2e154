/* Which answer a request gets. Knows no socket. */
#ifndef HEDDLE_SERVER_RESPONSE_H
#define HEDDLE_SERVER_RESPONSE_H

#include "body.h"
#include "request.h"
#include "stats.h"
#include "upload.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct response {
    uint64_t delay; /* nanoseconds to wait before the first byte */
    bool keep_alive;
    bool drain;       /* the client may still be sending: read on after the answer, then close */
    size_t length;    /* of `bytes` */
    char bytes[1024]; /* the head, and a short body */
    struct body body; /* what follows */
};

/* The answer to a whole request. */
void response_for(struct response *response, const struct request *request, struct stats *stats);
/* Whether what follows the head is to be read, and compared with what /b/BYTES sends. */
bool response_wants_upload(const struct request *request);
/* The answer to a request whose body has come, or cannot be made sense of. */
void response_to_upload(struct response *response, const struct upload *upload, bool whole, struct stats *stats);
/* The answer to a head that could not be parsed. */
void response_refuse(struct response *response, enum request_result result, struct stats *stats);

#endif
