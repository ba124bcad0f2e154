// The memory of Strings that bytes are received into: how it grows and shrinks, and what the GC and malloc are told.
//
// A body's length is known, or not:
// - known: room for what is missing, at first 4 MiB beyond what has arrived, twice as much each time, at most 16 MiB.
//   So a length that a server only claims reserves little.
// - unknown: as much again as has arrived, from 64 KiB to 16 MiB.
// Pieces that come by the thousand (chunks, lines in @rbuf) get half as much again. What is received without the GVL
// is asked of the kernel a MiB at a time. At its end a String gives back what it does not need.
#ifndef HEDDLE_NET_HTTP_STRING_H
#define HEDDLE_NET_HTTP_STRING_H

#include "heddle.h"

// A new, empty and binary String.
VALUE net_http_string_new(size_t room);

// Makes room for `room` bytes behind the String's end, and makes sure that the String shares its memory with no other.
void net_http_string_make_room(VALUE string, size_t room);

// Returns how many bytes have room behind the end now.
size_t net_http_string_room(VALUE string);

// `count` bytes were put behind the end.
void net_http_string_add_length(VALUE string, size_t count);

// Gives back memory that the String has reserved and does not need.
void net_http_string_trim(VALUE string);

// Tells the GC and malloc that a body's bytes got new memory, or were handed out as a String. May end a collection that
// is under way, which moves nothing that is on the stack; runs no Ruby code.
void net_http_string_count(size_t length);

// Has the kernel map memory that is about to be written.
enum { NET_HTTP_POPULATED = 1 << 20 };
void net_http_string_populate(uint8_t *at, size_t length);

// A String that a body is received into.
struct net_http_growth {
    VALUE string;
    size_t next; // how much may be reserved next
    bool alone;  // the String was empty and holds nothing but this body: it gets no room to spare
};

// `length`: of the body, or UINT64_MAX. `here`: how much of it has arrived already; there is room for that afterwards.
struct net_http_growth net_http_growth_begin(VALUE string, uint64_t length, size_t here);

// Returns how many bytes may be received behind the end now, at least one. `left`: how many are missing, or UINT64_MAX.
size_t net_http_growth_room(struct net_http_growth *growth, uint64_t left);

// Makes room for `count` bytes that have arrived elsewhere.
void net_http_growth_make_room(struct net_http_growth *growth, uint64_t left, size_t count);

#endif
