// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this room.
#ifndef HEDDLE_OS_BINDINGS_H
#define HEDDLE_OS_BINDINGS_H

#include <ruby.h>

void Init_heddle_fork(void);
void Init_heddle_main_ractor(void);
void Init_heddle_own_thread(void);
void Init_heddle_socket_guard(void);
void Init_heddle_socket_object(void);
void Init_heddle_trap_handlers(void);

#endif
