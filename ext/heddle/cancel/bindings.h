// Called once, when the extension is loaded. Each function prepares one file of this room.
#ifndef HEDDLE_CANCEL_BINDINGS_H
#define HEDDLE_CANCEL_BINDINGS_H

void Init_heddle_scope(void);
void Init_heddle_scope_error(void);
void Init_heddle_scope_fiber(void);

#endif
