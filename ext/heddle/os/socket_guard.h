// Heddle::SocketGuard: shuts a socket down at a deadline, whatever Ruby's threads are doing.
#ifndef HEDDLE_SOCKET_GUARD_H
#define HEDDLE_SOCKET_GUARD_H

void Init_heddle_socket_guard(void);

#endif
