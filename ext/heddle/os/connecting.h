// bind(2), connect(2) and its outcome, which a simulation takes over.
#ifndef HEDDLE_OS_CONNECTING_H
#define HEDDLE_OS_CONNECTING_H

#include <sys/socket.h>

// As connect(2): 0, or -1 with errno.
int connecting_begin(int descriptor, const struct sockaddr *address, socklen_t length);

// As bind(2).
int connecting_bind(int descriptor, const struct sockaddr *address, socklen_t length);

// The errno with which a connect has ended, or 0.
int connecting_error(int descriptor);

struct simulated_connects {
    int (*begin)(int descriptor, const struct sockaddr *address, socklen_t length);
    int (*bind)(int descriptor, const struct sockaddr *address, socklen_t length);
    int (*error)(int descriptor);
};

// From now on these answer; the kernel again with NULL.
void connecting_simulate(const struct simulated_connects *functions);

#endif
