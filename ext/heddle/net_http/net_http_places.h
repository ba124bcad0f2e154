// Connections or TLS sessions by their keys: KeepAlive::Places.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_PLACES_H
#define HEDDLE_NET_HTTP_NET_HTTP_PLACES_H

#include <ruby.h>
#include <stdbool.h>

// What a KeepAlive::Key holds, or the same of a Net::HTTP whose connection depends on host and port alone.
struct net_http_key {
    VALUE session_class, host, port, settings, objects;
    VALUE place; // a number for host and port; two of them rarely have the same
};

struct net_http_key net_http_key_of(VALUE key);
struct net_http_key net_http_bare_key(VALUE session_class, VALUE host, VALUE port);

// The entry with an equal key that came last; or nil. Only a program's own eql? lets other threads run.
VALUE net_http_places_find(VALUE places, const struct net_http_key *key);

// Returns whether it was there. Nobody else gets it.
bool net_http_places_delete(VALUE places, VALUE entry);

// Returns false, and adds nothing, if there would be too many entries; see `add` of KeepAlive::Places.
bool net_http_places_have_room(VALUE places, const struct net_http_key *key, long most_beside, long most);
void net_http_places_add(VALUE places, VALUE entry, const struct net_http_key *key);

#endif
