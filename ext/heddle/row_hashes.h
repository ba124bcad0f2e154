// Rows of a database as Hashes, for libraries that hand out such.
#ifndef HEDDLE_ROW_HASHES_H
#define HEDDLE_ROW_HASHES_H

void Init_heddle_row_hashes(void);

#endif
