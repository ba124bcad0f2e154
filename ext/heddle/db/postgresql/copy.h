// COPY between the server and the client, by a simple Query (section "COPY Operations" of the protocol). The block of
// the caller runs in the middle: each piece of data is an exchange of its own, and the connection owes its reply until
// the server's ReadyForQuery. copy.c has the beginning and the end, copy_in.c and copy_out.c the data of each
// direction.
#ifndef HEDDLE_DB_POSTGRESQL_COPY_H
#define HEDDLE_DB_POSTGRESQL_COPY_H

#include "db/postgresql/protocol.h"
#include "wire/postgresql/copy.h"

enum postgresql_copy_form { POSTGRESQL_COPY_TEXT, POSTGRESQL_COPY_CSV, POSTGRESQL_COPY_BINARY };

struct postgresql_copy {
    VALUE protocol;
    VALUE null;              // the text of NULL; the forms point into it
    VALUE error;             // the server's, or nil
    VALUE described;         // of the binary form: the Columns; nil if they are not known
    VALUE converter;         // of the binary form: makes the values that put_plain does not know
    struct pg_buffer buffer; // rows to be sent, in an open CopyData; or received bytes that are not parsed yet
    size_t start;            // of COPY TO: bytes of the buffer that are used up
    size_t whole;            // of COPY FROM: bytes of whole rows in the buffer
    struct pg_copy_text text;
    struct pg_copy_csv csv;
    struct pg_copy_scan scan; // of COPY TO: how far the row at `start` was read
    enum postgresql_copy_form form;
    uint32_t columns;
    uint64_t rows;  // as the server counts them
    uint64_t added; // by <<
    bool plain;     // numbers need neither escapes nor quotes
    bool raw;       // the server's bytes are wanted, not their fields
    bool foreign;   // the data is in another encoding than UTF-8
    bool heading;   // of COPY FROM: the server leaves the first line out
    bool header;    // of the binary form: was read or written
    bool done;      // the server has sent all data
    bool more;      // the buffer may have whole rows
    bool ended;
};

struct postgresql_copy *postgresql_copy_of(VALUE self);

// A COPY that the server has begun, as an object of the class. Options: format (:text, :csv, :binary), delimiter, null,
// quote, escape, encoding (one that is not UTF-8), header, raw; described (Columns) and converter, of the binary form.
VALUE postgresql_copy_new(VALUE klass, VALUE protocol, VALUE columns, VALUE options);

// What is left of the reply: its count of rows, or the server's error.
struct postgresql_copy_end {
    VALUE error;
    uint64_t rows;
    bool counted;
};

// Reads one message of the end; false after the last one.
bool postgresql_copy_read_end(struct postgresql_protocol *protocol, struct pg_message message,
                              struct postgresql_copy_end *end);
void postgresql_copy_read_to_end(struct postgresql_protocol *protocol, struct postgresql_copy_end *end);

// ---- copy_values.c: values in the binary form

// Puts a value in the type's binary form, with its length, without running Ruby code. Returns false, and puts nothing,
// for a value that Ruby code must convert or refuse.
bool postgresql_copy_put_plain(const struct postgresql_protocol *protocol, struct pg_buffer *buffer,
                               enum postgresql_kind kind, VALUE value, enum pg_written *written);

// The values of a tuple, by the types of the columns. Runs Ruby code: not within an exchange. Keep the tuple on the
// stack.
VALUE postgresql_copy_typed_row(struct postgresql_protocol *protocol, VALUE tuple, VALUE described);

void postgresql_copy_values_define(void);
void postgresql_copy_in_define(void);
void postgresql_copy_out_define(void);

#endif
