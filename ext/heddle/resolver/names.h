// The resolver for Ruby callers: answers and errors are Ruby's own.
#ifndef HEDDLE_RESOLVER_NAMES_H
#define HEDDLE_RESOLVER_NAMES_H

#include "loop/loop.h"

// The numeric addresses of `host`, in the order of RFC 6724 as getaddrinfo returns them; nil if the name does not
// exist. Raises SocketError for other failures, as Ruby's own look-up does.
VALUE names_addresses(struct loop *loop, VALUE host);

// [host, service] of a socket address (a String), from getnameinfo with these flags. Raises SocketError.
VALUE names_of_address(struct loop *loop, VALUE address, int flags);

// The exception for an EAI_… error of a look-up, with Ruby's message, which begins with the call's name.
VALUE names_error(int error, int system_error, const char *call);

#endif
