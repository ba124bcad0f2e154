// The data of COPY in its three forms (SQL manual, COPY, "File Formats"): text, csv, and binary. CopyData messages may
// split the data anywhere: a reader returns how many bytes it has taken, and PG_MORE for an incomplete row. Plain C,
// without ruby.h.
//
// When more bytes have come, call the reader again with all bytes of the row, and with the same struct pg_copy_scan: it
// continues where it stopped. A row that comes byte by byte would otherwise take time in the square of its length.
#ifndef HEDDLE_WIRE_POSTGRESQL_COPY_H
#define HEDDLE_WIRE_POSTGRESQL_COPY_H

#include "wire/postgresql/buffer.h"

struct pg_copy_scan { // zeroed for the first row; a reader zeroes it after each whole row
    size_t seen;      // bytes of the row that need not be read again
    uint16_t left;    // of the binary form: values that begin behind them
    bool quoted;      // of csv: they end within quotes
    bool carriage;    // of the text form: they end with a carriage return
};

// ---- text: a line for each row, with a tab between fields

struct pg_copy_text {
    uint8_t delimiter;   // '\t'
    struct pg_span null; // "\\N"; contains no escapes
};
extern const struct pg_copy_text pg_copy_text_default;

// Reads the line at `p`, without its end; *next is behind the line. With `last`, no bytes follow and the last line may
// lack its end; PG_MORE then means that no line is left. `end_of_data` is true for the line \. alone.
enum pg_parsed pg_copy_text_line(const uint8_t *p, const uint8_t *end, bool last, struct pg_copy_scan *scan,
                                 struct pg_span *line, const uint8_t **next, bool *end_of_data);

// Iterates over the fields of a line, which has at least one; a field may be empty.
struct pg_copy_fields {
    const uint8_t *p, *end;
    bool ended;
};
static inline void pg_copy_fields_begin(struct pg_copy_fields *fields, struct pg_span line)
{
    *fields = (struct pg_copy_fields){line.at, line.at + line.length, false};
}
struct pg_copy_field {
    struct pg_span raw; // as in the data; NULL without `at`
    bool encoded;       // needs pg_copy_text_decode or pg_copy_csv_decode
};
bool pg_copy_text_next(const struct pg_copy_text *form, struct pg_copy_fields *fields, struct pg_copy_field *field);
// Writes at most raw.length bytes to `out`. Returns the number of bytes.
size_t pg_copy_text_decode(struct pg_span raw, uint8_t *out);

// Writes the value alone; separate fields with pg_put_8 and the delimiter, and rows with '\n'. A span without `at` is
// NULL. PG_OUT_OF_RANGE: an empty value that would be read as NULL.
enum pg_written pg_put_copy_text(struct pg_buffer *buffer, const struct pg_copy_text *form, struct pg_span value);

// ---- csv

struct pg_copy_csv {
    uint8_t delimiter, quote, escape; // ',', '"', '"'
    struct pg_span null;              // ""
};
extern const struct pg_copy_csv pg_copy_csv_default;

// Reads the record at `p`, which may span several lines, like pg_copy_text_line. PG_INVALID: with `last`, a quote that
// does not end.
enum pg_parsed pg_copy_csv_record(const struct pg_copy_csv *form, const uint8_t *p, const uint8_t *end, bool last,
                                  struct pg_copy_scan *scan, struct pg_span *record, const uint8_t **next,
                                  bool *end_of_data);
bool pg_copy_csv_next(const struct pg_copy_csv *form, struct pg_copy_fields *fields, struct pg_copy_field *field);
// Writes at most raw.length bytes to `out`. Returns the number of bytes.
size_t pg_copy_csv_decode(const struct pg_copy_csv *form, struct pg_span raw, uint8_t *out);

// Writes the value alone, quoted if necessary. `only`: the row has no other value; then the value \. is quoted.
enum pg_written pg_put_copy_csv(struct pg_buffer *buffer, const struct pg_copy_csv *form, struct pg_span value,
                                bool only);

// ---- binary: a header, for each row a tuple in the form of DataRow (see pg_row), and a trailer

enum { PG_COPY_TRAILER = 0xffff };

// Also returns PG_INVALID for a header with unknown flags, and for one with OIDs, which servers before 12 could send.
enum pg_parsed pg_copy_binary_header(const uint8_t *p, const uint8_t *end, const uint8_t **next);
enum pg_written pg_put_copy_binary_header(struct pg_buffer *buffer);

// The tuple at `p`, for pg_row_begin; without `at` for the trailer.
enum pg_parsed pg_copy_binary_tuple(const uint8_t *p, const uint8_t *end, struct pg_copy_scan *scan,
                                    struct pg_span *tuple, const uint8_t **next);
// Writes the head of a tuple; write `count` values afterwards.
enum pg_written pg_put_copy_binary_tuple(struct pg_buffer *buffer, size_t count);
static inline enum pg_written pg_put_copy_binary_trailer(struct pg_buffer *buffer)
{
    return pg_put_16(buffer, PG_COPY_TRAILER);
}

#endif
