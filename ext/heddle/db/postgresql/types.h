// PostgreSQL's types. Those of the server itself have fixed OIDs, which a table here knows. The OIDs of other types
// (enums, composites, domains, extensions) differ between databases: Ruby looks each up once for a connection
// (lib/heddle/db/postgresql/types.rb) and keeps it in the protocol.
#ifndef HEDDLE_DB_POSTGRESQL_TYPES_H
#define HEDDLE_DB_POSTGRESQL_TYPES_H

#include "os/deadline.h"

#include <ruby.h>

#include <stdbool.h>
#include <stdint.h>

struct postgresql_protocol;

// How the binary form of a value is read.
enum postgresql_kind {
    POSTGRESQL_KIND_UNKNOWN, // not looked up yet
    POSTGRESQL_KIND_BOOL,
    POSTGRESQL_KIND_INT2,
    POSTGRESQL_KIND_INT4,
    POSTGRESQL_KIND_INT8,
    POSTGRESQL_KIND_UINT4,
    POSTGRESQL_KIND_UINT8,
    POSTGRESQL_KIND_FLOAT4,
    POSTGRESQL_KIND_FLOAT8,
    POSTGRESQL_KIND_TEXT,
    POSTGRESQL_KIND_BYTES,
    POSTGRESQL_KIND_UUID,
    POSTGRESQL_KIND_JSON,
    POSTGRESQL_KIND_JSONB,
    POSTGRESQL_KIND_VERSIONED, // a version, and text
    POSTGRESQL_KIND_ENUM,
    POSTGRESQL_KIND_VOID,
    POSTGRESQL_KIND_TIMESTAMPTZ,
    POSTGRESQL_KIND_TIMETZ,
    POSTGRESQL_KIND_MACADDR,
    POSTGRESQL_KIND_BITS,
    POSTGRESQL_KIND_LSN,
    POSTGRESQL_KIND_TSVECTOR,
    POSTGRESQL_KIND_RUBY, // the kinds from here on may run Ruby code
    POSTGRESQL_KIND_NUMERIC = POSTGRESQL_KIND_RUBY,
    POSTGRESQL_KIND_DATE,
    POSTGRESQL_KIND_TIMESTAMP,
    POSTGRESQL_KIND_TIME,
    POSTGRESQL_KIND_INTERVAL,
    POSTGRESQL_KIND_INET,
    POSTGRESQL_KIND_POINT,
    POSTGRESQL_KIND_LINE,
    POSTGRESQL_KIND_LSEG,
    POSTGRESQL_KIND_BOX,
    POSTGRESQL_KIND_PATH,
    POSTGRESQL_KIND_POLYGON,
    POSTGRESQL_KIND_CIRCLE,
    POSTGRESQL_KIND_ARRAY,
    POSTGRESQL_KIND_RANGE,      // element: the type of the bounds
    POSTGRESQL_KIND_MULTIRANGE, // element: the type of the ranges
    POSTGRESQL_KIND_RECORD,
    POSTGRESQL_KIND_COMPOSITE, // extra: the names of the fields
    POSTGRESQL_KIND_DOMAIN,    // element: the type that it restricts
    POSTGRESQL_KIND_HSTORE,
    POSTGRESQL_KIND_VECTOR,
    POSTGRESQL_KIND_MONEY,  // the server is asked for its number
    POSTGRESQL_KIND_SERVER, // the server is asked for its text
    POSTGRESQL_KINDS
};

struct postgresql_type {
    uint32_t element; // OID
    enum postgresql_kind kind;
    VALUE extra;   // nil for most
    VALUE convert; // what a program registered for the type: called with the value; nil for most
};

// `types` are those of the connection. The kind is POSTGRESQL_KIND_UNKNOWN if the type was not looked up yet.
struct postgresql_type postgresql_type_of(VALUE types, uint32_t oid);

// Notes that the type is to be looked up once no answer is owed.
void postgresql_type_wanted(struct postgresql_protocol *protocol, uint32_t oid);

// The Symbol that Heddle::DB::Column#type has.
VALUE postgresql_type_symbol(VALUE types, uint32_t oid);

// The text that the server gave for a value; undef after noting that it is to be asked for.
VALUE postgresql_server_text(struct postgresql_protocol *protocol, uint32_t oid, VALUE bytes);

// Looks up types, and makes the values that waited for them. Does nothing while answers are owed. The time of the
// exchange behind which this is done limits it, too.
void postgresql_settle(VALUE self, deadline_t until);

void postgresql_types_define(void);
void postgresql_types_load_classes(void);

#endif
