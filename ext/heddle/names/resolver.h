// Names to addresses and addresses to names, on a few native threads that call getaddrinfo and getnameinfo:
// nsswitch.conf, /etc/hosts and search domains are honoured, no Ruby thread is made, and no loop waits.
//
// Who asks for the same at the same time shares one look-up. Answers can be kept for a while: resolver_keep.
#ifndef HEDDLE_NAMES_RESOLVER_H
#define HEDDLE_NAMES_RESOLVER_H

#include "loop/wakeup.h"
#include "names/addresses.h"

// One asker's share in a look-up. Belongs to one fiber or thread; all functions are called there, or where it is said.
struct lookup;

// What a look-up found; stays until lookup_end.
struct answer {
    int error;        // EAI_…, or 0
    int system_error; // errno with EAI_SYSTEM
    struct addresses *addresses;
    char *host, *service; // of an address
};

// The addresses of a name of one family (AF_INET, AF_INET6), or of both (AF_UNSPEC) in the order of RFC 6724. NULL without
// memory. Nothing is asked before lookup_submit.
struct lookup *lookup_name(const char *host, int family);

// The name of an address; `flags` are getnameinfo's.
struct lookup *lookup_address(const struct sockaddr *address, socklen_t length, int flags);

// Starts it, or joins one that goes on. Once there is an answer, a note is posted with the key; see wakeup.h. Does not raise.
void lookup_submit(struct lookup *lookup, struct wakeup *wakeup, uint64_t key);

// Another key from now on: only the thread of the loop looks at it, where it takes its notes.
void lookup_expect(struct lookup *lookup, uint64_t key);

// NULL as long as there is none.
const struct answer *lookup_answer(const struct lookup *lookup);

// Lets go of it, answered or not: nothing is posted afterwards, and what nobody waits for any more is not begun.
void lookup_end(struct lookup *lookup);

// How long answers are good for, in nanoseconds: 0 (as at the start) keeps none. That a name does not exist is an answer;
// that nobody could be asked is none. At most RESOLVER_KEPT are kept. With the GVL.
enum { RESOLVER_KEPT = 1024 };
void resolver_keep(int64_t span);
int64_t resolver_kept(void);

#endif
