// Writes a trace's events to a file, in Chrome's trace event format (an array of JSON objects, one a line), which
// Perfetto opens. Used by the trace's native thread alone, without the GVL.
//
// A thread's track has its polls and the turns of its tasks, flows from who woke a task to the task's next turn, and
// instants for bytes moved. A task's own track has its life and its waits.
#ifndef HEDDLE_INSIGHT_TRACE_FILE_H
#define HEDDLE_INSIGHT_TRACE_FILE_H

#include "insight/text.h"
#include "insight/trace_names.h"
#include "loop/trace.h"
#include "os/own_descriptor.h"

struct trace_file {
    struct own_descriptor descriptor;
    const atomic_bool *stop; // the trace has ended: the end of the file is all that is still to come
    int error;               // errno of the first write that failed, or 0; nothing is written any more
    int process;
    deadline_t began;
    struct trace_names names;
    bool separate;    // an object has been written
    struct text text; // that is still to be written
};

// The descriptor is the file's from now on: a pipe's must not block.
void trace_file_begin(struct trace_file *file, int descriptor, const atomic_bool *stop);

// Writes what the ring has got. Returns how many events. A ring that its loop has left is free afterwards.
size_t trace_file_take(struct trace_file *file, struct trace_ring *ring);

// Writes to the file what was gathered.
void trace_file_flush(struct trace_file *file);

// Writes the end: of tasks that have not ended, the rings' names and losses. Closes the file.
void trace_file_end(struct trace_file *file, const struct trace *trace, deadline_t now);

#endif
