// Interrupts the owner of a call when the peer of a socket hangs up, whatever the owner waits for.
#ifndef HEDDLE_LOOP_HANG_UP_H
#define HEDDLE_LOOP_HANG_UP_H

#include "loop/loop.h"

// Calls `body`. If the peer hangs up meanwhile, or has before, raises the exception once in the running owner: in its
// wait, or in its next one before the call returns. Not if something else is to be raised in it then.
VALUE loop_call_until_hang_up(struct loop *loop, int descriptor, VALUE exception, VALUE (*body)(VALUE), VALUE argument);

#endif
