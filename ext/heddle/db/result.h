// Heddle::DB::Result and Heddle::DB::ServerError, made in C: the variables that lib/heddle/db/result.rb and errors.rb
// read.
#ifndef HEDDLE_DB_RESULT_H
#define HEDDLE_DB_RESULT_H

#include "heddle.h"

// Looks up the classes, once they are loaded. May be called several times.
void db_result_load_classes(void);

// A class or module that is kept for ever. Raises NameError.
VALUE db_class(const char *name);

// `description`: the columns, with #names and #to_a, and `rows` an Array; both nil for a statement without rows.
// Variables that most results do not need stay undefined: Ruby 3.1 keeps three variables in the object itself.
VALUE db_result_new(VALUE description, VALUE rows, VALUE affected);
VALUE db_result_of(VALUE klass, VALUE description, VALUE rows, VALUE affected); // of a subclass
void db_result_set_last_id(VALUE result, VALUE id);
void db_result_set_warnings(VALUE result, VALUE count);
void db_result_set_following(VALUE result, VALUE following);

// Whether it has columns and rows, perhaps none.
bool db_result_has_rows(VALUE result);

// False for an error.
bool db_is_result(VALUE value);

// An error that is not raised. Its class is that of `key` in `classes`, a Hash, or else ServerError.
VALUE db_server_error(VALUE classes, VALUE key, VALUE message);

#endif
