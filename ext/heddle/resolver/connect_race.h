// Connects to a name (RFC 8305, "Happy Eyeballs"): looks up both families at once and races their addresses, with
// non-blocking connects that a fiber or a thread waits for. Knows no Ruby class.
#ifndef HEDDLE_RESOLVER_CONNECT_RACE_H
#define HEDDLE_RESOLVER_CONNECT_RACE_H

#include "resolver/lookup_wait.h"

enum race_failure {
    RACE_LOOKUP,   // `error` is EAI_…, `system_error` an errno with EAI_SYSTEM
    RACE_CALL,     // `error` is the errno of `call` for `address`
    RACE_TIMEOUT,  // the spans below are over
    RACE_NO_LOCAL, // no local address has a family that the host has
    RACE_REFUSED,  // `allows` returned false for each address that there was
};

enum { RACE_IN_FLIGHT = 32 }; // most connects at once

struct connect_race {
    // Input, in nanoseconds. `connect_span` covers the look-up, too, unless the look-up has a span of its own.
    const char *host;
    uint16_t port;
    const struct addresses *local; // to bind to, or NULL
    bool reuse_local;              // set SO_REUSEADDR on it
    int64_t resolve_span;
    int64_t connect_span;
    struct lookup_wait waiter;
    // Returns whether the address may be connected to; false also if it takes longer than the span. Called immediately
    // before the connect; may run other fibers, and raise.
    bool (*allows)(void *caller, const struct socket_address *address, int64_t span);
    void *caller;

    // Output.
    int descriptor; // the connection; -1 once it is taken
    enum race_failure failure;
    int error, system_error;
    const char *call;
    struct socket_address address;
    unsigned attempts;

    // Internal.
    struct addresses *known; // of a host that needs no look-up
    struct source {
        struct lookup *lookup;
        const struct socket_address *list; // of one family
        size_t count, next;
        bool ended; // no more addresses will come
    } sources[LOOKUP_WAIT_MOST];
    struct attempt {
        int descriptor;
        struct socket_address address;
    } in_flight[RACE_IN_FLIGHT];
    size_t in_flight_count;
    struct pollfd polled[RACE_IN_FLIGHT + 1];
    int turn; // the source of the next address
    deadline_t next_attempt_at;
    deadline_t grace_until; // how long IPv4 waits for IPv6's addresses
    deadline_t resolve_until, connect_until;
    deadline_t bound; // the deadline in force
};

// Returns true with `descriptor`, non-blocking and close-on-exec; false with `failure`. May run other fibers, and
// raises what is pending for the task or thread. Always call connect_race_end afterwards.
bool connect_race_run(struct connect_race *race);

// Closes the remaining descriptors, including the winner's unless it was taken.
void connect_race_end(struct connect_race *race);

#endif
