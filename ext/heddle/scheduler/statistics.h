// What a loop has counted, for those who ask: Scheduler#statistics.
#ifndef HEDDLE_SCHEDULER_STATISTICS_H
#define HEDDLE_SCHEDULER_STATISTICS_H

#include "heddle.h"

void statistics_define(VALUE scheduler_class);

#endif
