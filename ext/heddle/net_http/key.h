// What makes two connections different, except for timeouts: KeepAlive::Key.
#ifndef HEDDLE_NET_HTTP_KEY_H
#define HEDDLE_NET_HTTP_KEY_H

#include "references.h"

#include <stdbool.h>

// What a KeepAlive::Key holds, or the same of a Net::HTTP whose connection depends on host and port alone.
struct net_http_key {
    VALUE session_class, host, port, settings, objects;
    VALUE endpoint; // a number for host and port; two of them rarely have the same
};

struct net_http_key net_http_key_of(VALUE key);
struct net_http_key net_http_bare_key(VALUE session_class, VALUE host, VALUE port);

// Whether they have equal settings and the same objects. Only a program's own eql? runs other code.
bool net_http_key_eql(const struct net_http_key *own, const struct net_http_key *values);

// Whether the connection of a Net::HTTP depends on host and port alone: no TLS, no proxy, no address of its own.
bool net_http_key_is_bare(VALUE http);

void net_http_key_references(struct net_http_key *key, reference_function *each);

#endif
