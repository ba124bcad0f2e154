// Names that the machine's own hosts file knows, without a thread and its switches: an application's commonest name is
// localhost. Anything that would need another source is left to the look-up.
#ifndef HEDDLE_NAMES_HOSTS_FILE_H
#define HEDDLE_NAMES_HOSTS_FILE_H

#include "names/addresses.h"

// All addresses of the name, IPv6 first; from malloc. NULL for a name that is not there, and wherever the file is not what
// getaddrinfo would ask first (nsswitch.conf), cannot be read or is large. With the GVL.
struct addresses *hosts_file_addresses(const char *name);

#endif
