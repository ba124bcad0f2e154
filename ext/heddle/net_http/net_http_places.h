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

// Whether the connection of a Net::HTTP depends on host and port alone: no TLS, no proxy, no address of its own.
bool net_http_key_is_bare(VALUE http);

void net_http_key_mark(const struct net_http_key *key);
void net_http_key_compact(struct net_http_key *key);

// Deletes the entry with an equal key that came last, and returns it, or nil: nobody else gets it. Only a program's own
// eql? lets other threads run, before that.
VALUE net_http_places_take(VALUE places, const struct net_http_key *key);

// Adds a connection. Deletes and returns an entry if there are too many now, see `add` of KeepAlive::Places; or nil.
VALUE net_http_places_add(VALUE places, VALUE connection, long most_beside, long most);

#endif
