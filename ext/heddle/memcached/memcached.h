// Heddle::Memcached: what its work is done with. Policy (which servers, when to try again, values to bytes) is in
// lib/heddle/memcached.
#ifndef HEDDLE_MEMCACHED_MEMCACHED_H
#define HEDDLE_MEMCACHED_MEMCACHED_H

// Defines the private method with which lib/heddle/memcached.rb defines the rest.
void Init_heddle_memcached(void);

#endif
