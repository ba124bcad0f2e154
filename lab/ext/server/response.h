/* Builds the response to a request. Knows no socket. */
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
    bool drain;       /* the client may still be sending: keep reading after the response, then close */
    size_t length;    /* of `bytes` */
    char bytes[1024]; /* the head, and a short body */
    struct body body; /* the rest of the body */
};

/* The response to a complete request. */
void response_for(struct response *response, const struct request *request, struct stats *stats);
/* Returns whether the request's body is to be read, and compared with the body of /b/BYTES. */
bool response_wants_upload(const struct request *request);
/* The response to a request whose body has come, or is malformed. */
void response_to_upload(struct response *response, const struct upload *upload, bool whole, struct stats *stats);
/* The response to a head that could not be parsed. */
void response_refuse(struct response *response, enum request_result result, struct stats *stats);

#endif
