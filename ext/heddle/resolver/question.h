// One call of getaddrinfo or getnameinfo.
#ifndef HEDDLE_RESOLVER_QUESTION_H
#define HEDDLE_RESOLVER_QUESTION_H

#include "resolver/resolver.h"

struct question {
    socklen_t length;    // of the address; 0 for a name
    int family_or_flags; // the family of the addresses wanted; or getnameinfo's flags
    union {
        struct sockaddr_storage address;
        char host[1]; // variable length
    };
};

// Waits for the answer. Runs on a native thread, without any lock.
void question_ask(const struct question *question, struct answer *answer);

// Call it on a new thread, before the first question.
void question_discard_parents(void);

#endif
