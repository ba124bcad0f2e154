// Connections or TLS sessions by their keys: KeepAlive::KeyedTable.
#ifndef HEDDLE_NET_HTTP_KEYED_TABLE_H
#define HEDDLE_NET_HTTP_KEYED_TABLE_H

#include "net_http/key.h"

// Deletes the entry with an equal key that came last, and returns it, or nil: nobody else gets it. Only a program's own
// eql? lets other threads run, before that.
VALUE net_http_keyed_table_take(VALUE table, const struct net_http_key *key);

// Adds a connection. Deletes and returns an entry if there are too many now, see `add` of KeepAlive::KeyedTable; or
// nil.
VALUE net_http_keyed_table_add(VALUE table, VALUE connection, long most_beside, long most);

#endif
