// PostgreSQL's frontend/backend protocol: the client's messages, appended to a buffer; Ruby writes those of the
// start-up. Each names its section of the protocol documentation, "Message Formats". A refused message leaves the
// buffer unchanged.
//
// One round trip for a statement that has not been prepared:
//
//   pg_put_parse(&buffer, name, sql, NULL, 0);
//   pg_bind_begin(&bind, &buffer, portal, name, formats, 2, 2);
//   pg_bind_value(&bind, first); pg_bind_value(&bind, second);
//   pg_bind_end(&bind, result_formats, 1);
//   pg_put_describe(&buffer, PG_PORTAL, portal);
//   pg_put_execute(&buffer, portal, 0);
//   pg_put_sync(&buffer);
#ifndef HEDDLE_WIRE_POSTGRESQL_REQUESTS_H
#define HEDDLE_WIRE_POSTGRESQL_REQUESTS_H

#include "wire/postgresql/buffer.h"

// The object that Describe and Close name.
enum pg_named { PG_STATEMENT = 'S', PG_PORTAL = 'P' };

// ---- queries

// Query
enum pg_written pg_put_query(struct pg_buffer *buffer, struct pg_span sql);

// Parse. `types` are OIDs, or 0 if the server shall infer the type; there may be fewer types than parameters.
enum pg_written pg_put_parse(struct pg_buffer *buffer, struct pg_span statement, struct pg_span sql,
                             const uint32_t *types, size_t type_count);

// Bind, in steps. The number of formats (PG_TEXT, PG_BINARY) is 0 if all are text, 1 for all values, or one for each.
// After a result other than PG_WRITTEN the whole message is removed, and the remaining steps return the same result.
struct pg_bind {
    struct pg_buffer *buffer;
    size_t message;          // where it begins
    uint32_t count, written; // parameters
    enum pg_written result;
};
enum pg_written pg_bind_begin(struct pg_bind *bind, struct pg_buffer *buffer, struct pg_span portal,
                              struct pg_span statement, const uint8_t *formats, size_t format_count,
                              size_t parameter_count);
// A span without `at` is NULL.
enum pg_written pg_bind_value(struct pg_bind *bind, struct pg_span value);
enum pg_written pg_bind_end(struct pg_bind *bind, const uint8_t *result_formats, size_t format_count);

// Describe
enum pg_written pg_put_describe(struct pg_buffer *buffer, enum pg_named what, struct pg_span name);

// Execute; 0 rows means all rows.
enum pg_written pg_put_execute(struct pg_buffer *buffer, struct pg_span portal, uint32_t rows);

// Close
enum pg_written pg_put_close(struct pg_buffer *buffer, enum pg_named what, struct pg_span name);

// Sync
enum pg_written pg_put_sync(struct pg_buffer *buffer);

// ---- COPY

// CopyData, whose bytes the caller writes between the two calls
enum pg_written pg_copy_data_begin(struct pg_buffer *buffer, size_t *message);
enum pg_written pg_copy_data_end(struct pg_buffer *buffer, size_t message);

// CopyDone
enum pg_written pg_put_copy_done(struct pg_buffer *buffer);

// CopyFail
enum pg_written pg_put_copy_fail(struct pg_buffer *buffer, struct pg_span reason);

#endif
