// Many keys at once: memcached_multi.c (the methods, and how the keys are shared out among the servers), memcached_shard.c (a
// server's share: what is sent and what comes back), memcached_batch.c (the commands of a pipeline).
#ifndef HEDDLE_MEMCACHED_MULTI_H
#define HEDDLE_MEMCACHED_MULTI_H

#include "memcached/internals.h"

enum multi_kind { MULTI_GET, MULTI_SET, MULTI_DELETE, MULTI_BATCH };

// A server's share of the keys.
struct shard {
    VALUE server;
    struct lease lease;
    long first, count; // which of `order`
    long done;         // of these
    long chunk;        // requests in the current window
    uint32_t base;     // the opaque of its first request
    VALUE error;       // of the connection, or nil
    bool begun, sent, sound, active;
};

struct multi {
    VALUE self;
    const struct memcached_client *client;
    enum multi_kind kind;
    VALUE keys;    // as they are sent
    VALUE values;  // of SET: bytes; of BATCH: commands
    VALUE flags;   // of SET
    VALUE results; // of BATCH, as many as keys: [status, …], an exception, or nil
    VALUE taken;   // of GET, an Array of indices or nil: stale, and now ours to make anew
    VALUE error;   // the first reply that was an error
    struct memcached_request pattern;
    bool *answered;        // of GET and DELETE: whether there was a reply for the key, which only one of the two has
    VALUE *pairs;          // of GET: a place for the key, and the bytes
    uint32_t *reply_flags; // of GET
    uint64_t *reply_cas;   // … or NULL
    long *order;           // indices of keys by server
    uint32_t *place;       // of each key, the server
    bool *finished;
    struct shard *shards;
    long count, shard_count;
    deadline_t until;
    bool again;
};

// ---- memcached_shard.c

// Each server gets its share in one window, all servers before the first reply is read. What fails is kept in the shards, unless it
// is no mere error. The connections are taken in the order of the servers, so that two of these never wait for each other.
void multi_run_shards(struct multi *multi);

// Gives the connections back; those of unfinished exchanges are closed.
void multi_end_shards(struct multi *multi);

// ---- memcached_batch.c

// What the command at this place asks for, but for its key and its opaque; *value becomes what it stores.
void multi_read_command(const struct multi *multi, long index, struct memcached_request *request, VALUE *value);

#endif
