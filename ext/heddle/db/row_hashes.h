// Rows of a database as Hashes, for libraries that hand out such.
#ifndef HEDDLE_DB_ROW_HASHES_H
#define HEDDLE_DB_ROW_HASHES_H

void Init_heddle_row_hashes(void);

#endif
