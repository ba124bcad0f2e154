// Addresses in their binary form: inet and cidr (network.c of the server), macaddr and macaddr8 (mac.c, mac8.c), and
// uuid (uuid.c).
#ifndef HEDDLE_WIRE_POSTGRESQL_VALUES_NETWORK_H
#define HEDDLE_WIRE_POSTGRESQL_VALUES_NETWORK_H

#include "wire/postgresql/buffer.h"

// ---- inet, cidr

struct pg_inet {
    uint8_t version; // 4 or 6
    uint8_t bits;    // of the network
    bool cidr;
    uint8_t address[16]; // an IPv4 address has 4 bytes
};
bool pg_read_inet(struct pg_span value, struct pg_inet *inet);

// ---- macaddr, macaddr8: 6 and 8 bytes, "08:00:2b:01:02:03"

enum { PG_MAC_TEXT_MOST = 23 };
// Writes the text, without a final NUL. Returns the number of bytes; 0 if the value has neither length.
size_t pg_mac_text(struct pg_span value, char text[PG_MAC_TEXT_MOST]);
// Parses hexadecimal digits, with ':' or '-' between the bytes or without separators.
enum pg_written pg_put_mac(struct pg_buffer *buffer, struct pg_span text);

// ---- uuid: 16 bytes, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"

enum { PG_UUID = 16, PG_UUID_TEXT = 36 };
bool pg_uuid_text(struct pg_span value, char text[PG_UUID_TEXT]);
// Parses text with or without hyphens and braces, in either case.
enum pg_written pg_put_uuid(struct pg_buffer *buffer, struct pg_span text);

#endif
