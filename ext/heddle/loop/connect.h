// Heddle::Compat::Connect::TCPClass and SocketClass: TCPSocket.new, TCPSocket.open and Socket.tcp with a race of our own.
#ifndef HEDDLE_LOOP_CONNECT_H
#define HEDDLE_LOOP_CONNECT_H

void Init_heddle_connect(void);

#endif
