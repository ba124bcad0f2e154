// Answers what this process does, to commands of the same user that ask through a UNIX socket. Two parties answer:
//
// A native thread (server.c) listens, reads the question, and writes what the records of loop/records.h tell. It never
// takes the GVL, so it answers while Ruby code or C code holds that for minutes.
// A Ruby thread, the helper (helper.c), adds what only Ruby can tell. The native thread waits a moment for the helper,
// and answers without it if the helper does not get the GVL.
//
// An answer is lines of JSON: a process, its loops, its tasks, the helper's line, the end.
#ifndef HEDDLE_INSIGHT_INSIGHT_H
#define HEDDLE_INSIGHT_INSIGHT_H

#include "insight/text.h"
#include "loop/records.h"
#include "os/deadline.h"

#include <sys/types.h>

enum { QUESTION = 128 }; // bytes at most, with the end of the line

// ---- server.c. With the GVL.

// Listens at the path, and starts the thread. `head`: the line with which each answer begins. Returns 0 or an errno.
int server_start(const char *path, const char *head);

// Stops listening, and waits for the thread's end.
void server_stop(void);
bool server_runs(void);

// ---- helper.c

enum helped {
    HELPED,
    HELPER_LATE,   // it did not get the GVL in time
    HELPER_MISSING // there is none
};

// Called by the server's thread, without the GVL. `patience`: nanoseconds without progress. `text`: the answer, for
// free(); set only with HELPED.
enum helped helper_ask(const char *question, int64_t patience, char **text, size_t *length);

// Whether the server's thread is to leave helper_ask at once.
void helper_hurry(bool hurry);

// In a child of fork.
void helper_discard(void);

// ---- details.c: what the helper adds to an answer

// The lines so far. Of the helper's thread alone.
struct text *details_lines(void);

void details_define(VALUE module);

// ---- rows.c: lines of JSON, each with the end of the line

void rows_loop(struct text *text, const struct loop_row *row, deadline_t now);
void rows_task(struct text *text, const struct task_row *row, deadline_t now);

// Defines Ruby methods.
void helper_define(VALUE module);

#endif
