// Many keys at once: multi.c (the methods, and how keys are distributed over servers), shard.c (one server's share:
// requests and replies), batch.c (the commands of a pipeline).
#ifndef HEDDLE_MEMCACHED_MULTI_H
#define HEDDLE_MEMCACHED_MULTI_H

#include "memcached/memcached.h"

enum multi_kind { MULTI_GET, MULTI_SET, MULTI_DELETE, MULTI_BATCH };

// One server's share of the keys.
struct shard {
    VALUE server;
    struct lease lease;
    long first, count; // range in `order`
    long done;         // keys finished so far
    long chunk;        // requests in the current window
    uint32_t base;     // the opaque of the window's first request
    VALUE error;       // of the connection, or nil
    bool begun, sent, in_sync, active;
};

struct multi {
    VALUE self;
    const struct memcached_client *client;
    enum multi_kind kind;
    VALUE keys;    // as sent
    VALUE values;  // of SET: bytes; of BATCH: commands
    VALUE flags;   // of SET
    VALUE results; // of BATCH, as many as keys: [status, …], an exception, or nil
    VALUE taken;   // GET: an Array of indices or nil: stale values that this request has won the right to recache
    VALUE error;   // the first error reply
    struct memcached_request pattern;
    bool *answered;        // GET and DELETE: whether the key got a reply (GET: found; DELETE: missing)
    VALUE *pairs;          // GET: room for the key, and the bytes
    uint32_t *reply_flags; // of GET
    uint64_t *reply_cas;   // … or NULL
    long *order;           // indices of keys by server
    uint32_t *place;       // the server's place, by key
    bool *finished;
    struct shard *shards;
    long count, shard_count;
    deadline_t until;
    bool again;
};

// ---- shard.c

// Sends each server its share in one window, to all servers before the first reply is read. Connection failures are
// kept in the shards; other exceptions are raised. Connections are leased in the order of the servers, so that two such
// operations never wait for each other.
void multi_run_shards(struct multi *multi);

// Gives the connections back; closes those of unfinished exchanges.
void multi_end_shards(struct multi *multi);

// ---- batch.c

// Reads the command at this place into the request, without its key and opaque; *value becomes the value to store.
void multi_read_command(const struct multi *multi, long index, struct memcached_request *request, VALUE *value);

#endif
