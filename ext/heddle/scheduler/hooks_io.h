// The hooks that move bytes and wait for descriptors.
#ifndef HEDDLE_SCHEDULER_HOOKS_IO_H
#define HEDDLE_SCHEDULER_HOOKS_IO_H

#include "heddle.h"

void hooks_io_define(VALUE scheduler_class);

#endif
