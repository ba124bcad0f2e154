// Connections or TLS sessions by their keys: KeepAlive::Places.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_PLACES_H
#define HEDDLE_NET_HTTP_NET_HTTP_PLACES_H

#include "net_http/net_http_key.h"

// Deletes the entry with an equal key that came last, and returns it, or nil: nobody else gets it. Only a program's own
// eql? lets other threads run, before that.
VALUE net_http_places_take(VALUE places, const struct net_http_key *key);

// Adds a connection. Deletes and returns an entry if there are too many now, see `add` of KeepAlive::Places; or nil.
VALUE net_http_places_add(VALUE places, VALUE connection, long most_beside, long most);

#endif
