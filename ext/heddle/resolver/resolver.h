// Resolves names to addresses and addresses to names, on a few native threads that call getaddrinfo and getnameinfo:
// nsswitch.conf, /etc/hosts and search domains apply, no Ruby thread is made, and no loop waits.
//
// Simultaneous questions for the same name share one look-up. Answers can be kept for a while: resolver_keep.
#ifndef HEDDLE_RESOLVER_RESOLVER_H
#define HEDDLE_RESOLVER_RESOLVER_H

#include "loop/wakeup.h"
#include "resolver/addresses.h"

// One asker's share in a look-up. Belongs to one fiber or thread, which calls all functions unless stated otherwise.
struct lookup;

// The result of a look-up; valid until lookup_end.
struct answer {
    int error;        // EAI_…, or 0
    int system_error; // errno with EAI_SYSTEM
    struct addresses *addresses;
    char *host, *service; // for an address
};

// The addresses of a name, of one family (AF_INET, AF_INET6) or of both (AF_UNSPEC) in the order of RFC 6724. NULL
// without memory. The look-up starts with lookup_submit.
struct lookup *lookup_name(const char *host, int family);

// The name of an address; `flags` are getnameinfo's.
struct lookup *lookup_address(const struct sockaddr *address, socklen_t length, int flags);

// Starts the look-up, or joins a running one. When the answer is there, posts a note with the key, see wakeup.h. Does
// not raise.
void lookup_submit(struct lookup *lookup, struct wakeup *wakeup, uint64_t key);

// Changes the key. Only the loop's thread reads it, when it takes its notes.
void lookup_expect(struct lookup *lookup, uint64_t key);

// The answer, or NULL before it is there.
const struct answer *lookup_answer(const struct lookup *lookup);

// Releases the lookup, answered or not. No note is posted afterwards, and a look-up without askers is not started.
void lookup_end(struct lookup *lookup);

// Sets how long answers are kept, in nanoseconds: 0, the default, keeps none. That a name does not exist is an answer;
// that no server could be asked is not. Keeps at most RESOLVER_CACHED answers. Needs the GVL.
enum { RESOLVER_CACHED = 1024 };
void resolver_keep(int64_t span);
int64_t resolver_caches(void);

// How many look-ups of this process have found something, and how many have not. Answers that were kept do not count.
void resolver_counts(uint64_t *found, uint64_t *failed);

// Copies the names of look-ups without an answer yet, at most so many, each cut to that length. Returns how many there
// are.
enum { RESOLVER_SHOWN = 256 };
size_t resolver_in_flight(char (*names)[RESOLVER_SHOWN], size_t most);

// A simulation answers in place of the threads and of the hosts file: `ask` gets each question for a name, and
// somebody answers it later, with addresses from malloc. NULL: the threads answer again. Needs the GVL.
struct job;
typedef void (*resolver_ask)(struct job *job, const char *host, int family);
void resolver_simulate(resolver_ask ask);
bool resolver_simulated(void);
void resolver_answer(struct job *job, int error, struct addresses *addresses);

#endif
