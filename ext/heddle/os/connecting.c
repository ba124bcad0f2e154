#include "os/connecting.h"

#include <errno.h>
#include <stddef.h>

static const struct simulated_connects *simulated;

void connecting_simulate(const struct simulated_connects *functions)
{
    simulated = functions;
}

int connecting_begin(int descriptor, const struct sockaddr *address, socklen_t length)
{
    return simulated ? simulated->begin(descriptor, address, length) : connect(descriptor, address, length);
}

int connecting_bind(int descriptor, const struct sockaddr *address, socklen_t length)
{
    return simulated ? simulated->bind(descriptor, address, length) : bind(descriptor, address, length);
}

int connecting_error(int descriptor)
{
    if (simulated) return simulated->error(descriptor);
    int error = 0;
    socklen_t size = sizeof(error);
    return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? errno : error;
}
