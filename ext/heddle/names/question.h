// One call of getaddrinfo or getnameinfo.
#ifndef HEDDLE_NAMES_QUESTION_H
#define HEDDLE_NAMES_QUESTION_H

#include "names/resolver.h"

struct question {
    socklen_t length;    // of an address; 0 for a name
    int family_or_flags; // of the addresses that are looked for; of getnameinfo
    union {
        struct sockaddr_storage address;
        char host[1]; // as long as it is
    };
};

// Waits for the answer. On a native thread, without any lock.
void question_ask(const struct question *question, struct answer *answer);

// On a thread that is new, before the first question.
void question_forget_parents(void);

#endif
