// Methods of sockets that a task calls often, without the detour over Ruby's hooks.
#ifndef HEDDLE_LOOP_SOCKET_METHODS_H
#define HEDDLE_LOOP_SOCKET_METHODS_H

void socket_methods_define(void);

#endif
