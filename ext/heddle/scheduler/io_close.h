// Heddle::Compat::IOClose: IO#close wakes the fibers that wait, and closes a socket without giving up the GVL.
#ifndef HEDDLE_SCHEDULER_IO_CLOSE_H
#define HEDDLE_SCHEDULER_IO_CLOSE_H

void io_close_define(void);

#endif
