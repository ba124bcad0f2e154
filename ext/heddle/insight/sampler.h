// Takes the Ruby frames of a thread while it runs, from outside. A signal makes the thread look at its own stack, in
// one of two places:
//
// - in the signal's handler, if the interrupted instruction is outside Ruby's own code (in an extension, or a library):
//   there Ruby's frames are whole. In the middle of Ruby's own code a frame may be half written, and reading it may
//   crash, as it does in memory that GC moves;
// - otherwise in a postponed job, which the thread runs before its next instruction of Ruby code.
//
// How long the job took to be run tells whether C code held the GVL. All of it is signal-safe, and allocates nothing.
#ifndef HEDDLE_INSIGHT_SAMPLER_H
#define HEDDLE_INSIGHT_SAMPLER_H

#include "os/deadline.h"

#include <stdatomic.h>

enum { SAMPLE_FRAMES = 40, SAMPLES = 8, SAMPLERS = 128 };

struct frames {
    _Atomic int count; // what GC marks
    VALUE of[SAMPLE_FRAMES];
    int lines[SAMPLE_FRAMES]; // 0: a method in C
};

struct sample {
    deadline_t asked;
    _Atomic int64_t signalled; // the thread's CPU time when the signal came; or 0
    atomic_bool reached;       // the thread ran the job …
    _Atomic int64_t used;      // … after so much more CPU time, or, without a signal, time; nanoseconds
    atomic_bool in_regexp;     // the signal came within Ruby's regular expressions, which run such jobs, too
    struct frames frames;      // none until one of the two places was reached
};

// Of one thread, during one turn.
struct sampler {
    _Atomic int thread;     // the kernel's number; 0: nobody asks
    _Atomic int asked;      // which sample is asked for, from 1 on; 0: none
    _Atomic uint64_t turn;  // samples are only taken while …
    _Atomic uint64_t *runs; // … this is the turn; NULL for a thread without turns
    atomic_bool busy;       // a sample is being written
    int used;               // samples of this turn, for the watcher
    struct sample samples[SAMPLES];
};

struct sampler *samplers(void); // SAMPLERS of them

// Takes a signal that nobody uses, and prepares. Needs the GVL. Does not raise.
void sampler_start(void);

// Gives the signal back.
void sampler_stop(void);

// The name of the signal that is used, or NULL.
const char *sampler_signal(void);

// Notes which libraries are loaded. Needs the GVL.
void sampler_note_libraries(void);

// ---- for the watcher, without the GVL, under its lock

// Forgets the samples: those of another turn or thread come. Returns false while one is being written.
bool sampler_begin(struct sampler *sampler, int thread, _Atomic uint64_t *runs, uint64_t turn);

// Asks for another sample, or again for the last one, if the thread has not answered. Returns false if every second
// sample had to go first: from now on samples are to be taken half as often.
bool sampler_ask(struct sampler *sampler, deadline_t now);

// ---- for the thread itself, with the GVL

// Takes the calling thread's frames.
void frames_take(struct frames *frames);

// Nothing is written from now on, unless false is returned: another thread is writing.
bool sampler_end(struct sampler *sampler);

// GC is to keep nothing for the samples.
void samplers_forget(void);

void sampler_mark(void);

#endif
