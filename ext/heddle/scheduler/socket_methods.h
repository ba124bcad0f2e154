// Methods of sockets that a task calls often, without the detour over Ruby's hooks.
#ifndef HEDDLE_SCHEDULER_SOCKET_METHODS_H
#define HEDDLE_SCHEDULER_SOCKET_METHODS_H

// With the first scheduler: a program without one shall see nothing of them.
void socket_methods_define(void);

#endif
