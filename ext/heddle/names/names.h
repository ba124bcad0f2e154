// The resolver as Ruby sees it: answers and errors as Ruby's own.
#ifndef HEDDLE_NAMES_NAMES_H
#define HEDDLE_NAMES_NAMES_H

#include "loop/loop.h"

// The numeric addresses of `host`, in the order of RFC 6724 as getaddrinfo gives them; nil when there is no such name.
// Raises SocketError for other failures, as Ruby's own look-up does.
VALUE names_addresses(struct loop *loop, VALUE host);

// [host, service] of an address as the kernel has it (a String), by getnameinfo with these flags. Raises SocketError.
VALUE names_of_address(struct loop *loop, VALUE address, int flags);

// The error of a look-up (EAI_…), in the words of Ruby, which starts them with the name of the call.
VALUE names_error(int error, int system_error, const char *call);

#endif
