// A connection to a name: both families are looked up at once and their addresses raced (RFC 8305, "Happy Eyeballs"), by
// non-blocking connects that a fiber, or a thread, waits for. Knows no Ruby class.
#ifndef HEDDLE_NAMES_CONNECT_RACE_H
#define HEDDLE_NAMES_CONNECT_RACE_H

#include "names/lookup_wait.h"

enum race_failure {
    RACE_LOOKUP,   // `error` is EAI_…, `system_error` an errno with EAI_SYSTEM
    RACE_CALL,     // `error` is the errno of `call` for `address`
    RACE_TIMEOUT,  // the spans below are over
    RACE_NO_LOCAL, // no local address is of a family that the host has
};

enum { RACE_IN_FLIGHT = 32 }; // connects at once, at most

struct connect_race {
    // What is asked. `connect_span` covers the look-up, too, unless that has a span of its own. Nanoseconds.
    const char *host;
    uint16_t port;
    const struct addresses *local; // to bind to, or NULL
    bool reuse_local;              // SO_REUSEADDR for that
    int64_t resolve_span;
    int64_t connect_span;
    struct lookup_wait waiter;

    // What comes of it.
    int descriptor; // of the connection; -1 once it is taken
    enum race_failure failure;
    int error, system_error;
    const char *call;
    struct socket_address address;
    unsigned attempts;

    // Its own.
    struct addresses *known; // of a host that needs no look-up
    struct source {
        struct lookup *lookup;
        const struct socket_address *list; // of one family
        size_t count, next;
        bool ended; // nothing is waited for any more
    } sources[LOOKUP_WAIT_MOST];
    struct attempt {
        int descriptor;
        struct socket_address address;
    } in_flight[RACE_IN_FLIGHT];
    size_t in_flight_count;
    struct pollfd polled[RACE_IN_FLIGHT + 1];
    int turn; // the source that the next address is to come from
    deadline_t next_attempt_at;
    deadline_t grace_until; // how long IPv4 waits for IPv6's addresses
    deadline_t resolve_until, connect_until;
    deadline_t bound; // the deadline in force
};

// True with `descriptor`, non-blocking and close-on-exec; false with `failure`. May run other fibers, and raises what is sent
// to the task or the thread; connect_race_end is to follow in any case.
bool connect_race_run(struct connect_race *race);

// Closes what is left, the winner included unless it was taken.
void connect_race_end(struct connect_race *race);

#endif
