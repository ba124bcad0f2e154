// Looks names up in the hosts file without a thread and its switches: an application's most common name is localhost.
// Names that need another source are left to the resolver.
#ifndef HEDDLE_RESOLVER_HOSTS_FILE_H
#define HEDDLE_RESOLVER_HOSTS_FILE_H

#include "resolver/addresses.h"

// All addresses of the name, IPv6 first; from malloc. NULL if the name is not in the file, if getaddrinfo would not ask
// the file first (nsswitch.conf), or if the file cannot be read or is large. Needs the GVL.
struct addresses *hosts_file_addresses(const char *name);

#endif
