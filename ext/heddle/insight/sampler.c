#include "insight/sampler.h"

#include "insight/thread_usage.h"
#include "os/native_thread.h"
#include "shims.h"

#include <errno.h>
#include <ruby/onigmo.h>
#include <signal.h>
#include <string.h>

static struct sampler table[SAMPLERS];
static atomic_bool started;

struct sampler *samplers(void)
{
    return table;
}

void frames_take(struct frames *frames)
{
    size_t before = rb_gc_count();
    int count = rb_during_gc() ? 0 : rb_profile_frames(0, SAMPLE_FRAMES, frames->of, frames->lines);
    // From here on GC marks them. A GC in another thread that began before this may have moved them already.
    atomic_store(&frames->count, count);
    if (rb_during_gc() || rb_gc_count() != before) atomic_store(&frames->count, 0);
}

// The sample that this thread is asked for, or NULL. Then no other place writes it until put_back.
static struct sample *claim(struct sampler *sampler, int thread)
{
    if (atomic_load(&sampler->thread) != thread || !atomic_load(&sampler->asked)) return NULL;
    if (atomic_exchange(&sampler->busy, true)) return NULL;
    int asked = atomic_load(&sampler->asked);
    _Atomic uint64_t *runs = sampler->runs;
    if (asked && atomic_load(&sampler->thread) == thread && (!runs || atomic_load(runs) == atomic_load(&sampler->turn)))
        return &sampler->samples[asked - 1];
    atomic_store(&sampler->busy, false);
    return NULL;
}

static void put_back(struct sampler *sampler)
{
    atomic_store(&sampler->busy, false);
}

// By CPU time: the thread may have waited for a processor meanwhile.
static void note_reached(struct sample *sample)
{
    int64_t signalled = atomic_load(&sample->signalled);
    atomic_store(&sample->used, signalled ? thread_own_cpu() - signalled : deadline_now() - sample->asked);
    atomic_store(&sample->reached, true);
}

static void look(void *unused)
{
    (void)unused;
    if (!atomic_load(&started)) return;
    int thread = native_thread_number();
    for (int i = 0; i < SAMPLERS; i++) {
        struct sample *sample = claim(&table[i], thread);
        if (!sample) continue;
        note_reached(sample);
        if (!atomic_load(&sample->frames.count)) frames_take(&sample->frames);
        atomic_store(&table[i].asked, 0);
        put_back(&table[i]);
    }
}

#ifdef HEDDLE_HAS_THREAD_SIGNALS

#include <link.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

// ---- where the code of libraries lies

enum { RANGES = 512 };

struct ranges {
    size_t count;
    struct {
        uintptr_t from, to;
    } of[RANGES];
};

// A handler that was interrupted may still read the table that was current a moment ago.
static struct ranges tables[2];
static _Atomic(struct ranges *) current;

static unsigned long long noted; // dlpi_adds, the number of libraries loaded so far

struct noting {
    struct ranges *ranges;
    bool begun, same;
};

static int note(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct noting *noting = argument;
    if (!noting->begun) { // the first may be Ruby itself, which adds no range
        noting->begun = true;
        noting->same = noted == info->dlpi_adds;
        noted = info->dlpi_adds;
    }
    if (noting->same) return 1;
    uintptr_t ruby = (uintptr_t)rb_profile_frames;
    bool of_ruby = false;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < info->dlpi_phnum; i++) {
            const ElfW(Phdr) *header = &info->dlpi_phdr[i];
            if (header->p_type != PT_LOAD || !(header->p_flags & PF_X)) continue;
            uintptr_t from = info->dlpi_addr + header->p_vaddr, to = from + header->p_memsz;
            if (from <= ruby && ruby < to) of_ruby = true;
            if (pass == 0 || of_ruby || noting->ranges->count == RANGES) continue;
            noting->ranges->of[noting->ranges->count].from = from;
            noting->ranges->of[noting->ranges->count++].to = to;
        }
    }
    return 0;
}

void sampler_note_libraries(void)
{
    struct ranges *ranges = atomic_load(&current) == &tables[0] ? &tables[1] : &tables[0];
    ranges->count = 0;
    struct noting noting = {.ranges = ranges};
    dl_iterate_phdr(note, &noting);
    if (!noting.same) atomic_store(&current, ranges);
}

// Returns whether the instruction belongs to a library other than Ruby: not to code that Ruby has compiled, either.
static bool outside_ruby(uintptr_t instruction)
{
    const struct ranges *ranges = atomic_load(&current);
    for (size_t i = 0; ranges && i < ranges->count; i++) {
        if (ranges->of[i].from <= instruction && instruction < ranges->of[i].to) return true;
    }
    return false;
}

// Whether it is of regexec.c, whose functions have no names outside. They lie between two of its neighbours'; where a
// compiler has ordered them otherwise, a regular expression passes for Ruby code.
static bool in_regexp(uintptr_t at)
{
    return (uintptr_t)onig_new <= at && at < (uintptr_t)onig_search + 4096;
}

// Address 0 where the processor's registers are not known: then only jobs take frames.
static uintptr_t instruction(const void *context)
{
    const ucontext_t *interrupted = context;
#if defined(__x86_64__)
    return (uintptr_t)interrupted->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)interrupted->uc_mcontext.pc;
#else
    (void)interrupted;
    return 0;
#endif
}

// ---- the signal

static int signal_taken; // or 0
static struct sigaction before;

static void handle(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    if (!atomic_load(&started) || !ruby_native_thread_p()) return;
    int saved = errno;
    int thread = native_thread_number();
    bool asked = false;
    for (int i = 0; i < SAMPLERS; i++) {
        struct sample *sample = claim(&table[i], thread);
        if (!sample) continue;
        asked = true;
        uintptr_t at = instruction(context);
        if (in_regexp(at)) atomic_store(&sample->in_regexp, true);
        if (!atomic_load(&sample->frames.count) && outside_ruby(at)) frames_take(&sample->frames);
        if (!atomic_load(&sample->signalled)) atomic_store(&sample->signalled, thread_own_cpu());
        put_back(&table[i]);
    }
    if (asked) shim_postpone(look);
    errno = saved;
}

// The kernel ignores both by default: one that arrives after the handler is gone does no harm.
static const int candidates[] = {SIGURG, SIGWINCH};

void sampler_start(void)
{
    sampler_note_libraries();
    for (size_t i = 0; i < sizeof(candidates) / sizeof(*candidates) && !signal_taken; i++) {
        if (sigaction(candidates[i], NULL, &before) != 0 || before.sa_handler != SIG_DFL) continue;
        struct sigaction ours = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
        sigemptyset(&ours.sa_mask);
        if (sigaction(candidates[i], &ours, NULL) == 0) signal_taken = candidates[i];
    }
    atomic_store(&started, true);
}

// Returns whether the signal's handler is ours still: the program may have set its own meanwhile.
static bool holds_signal(void)
{
    struct sigaction now;
    return signal_taken && sigaction(signal_taken, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO &&
           now.sa_sigaction == handle;
}

void sampler_stop(void)
{
    atomic_store(&started, false);
    if (holds_signal()) sigaction(signal_taken, &before, NULL);
    signal_taken = 0;
}

const char *sampler_signal(void)
{
    return !holds_signal() ? NULL : signal_taken == SIGURG ? "URG" : "WINCH";
}

static void send_signal(int thread)
{
    if (holds_signal()) {
        syscall(SYS_tgkill, getpid(), thread, signal_taken);
    } else {
        shim_postpone_from_outside(look);
    }
}

#else

void sampler_note_libraries(void)
{
}

void sampler_start(void)
{
    atomic_store(&started, true);
}

void sampler_stop(void)
{
    atomic_store(&started, false);
}

const char *sampler_signal(void)
{
    return NULL;
}

static void send_signal(int thread)
{
    (void)thread;
    shim_postpone_from_outside(look);
}

#endif

// ---- asking

bool sampler_begin(struct sampler *sampler, int thread, _Atomic uint64_t *runs, uint64_t turn)
{
    atomic_store(&sampler->asked, 0);
    if (atomic_load(&sampler->busy)) return false;
    sampler->used = 0;
    sampler->runs = runs;
    atomic_store(&sampler->turn, turn);
    atomic_store(&sampler->thread, thread);
    return true;
}

// GC may mark both at any time: neither may have more frames than are whole. It may have read the old count already:
// beyond the copied frames the old ones stay, because `from` has what was collected long ago there.
static void copy_sample(struct sample *to, const struct sample *from)
{
    size_t count = (size_t)atomic_load(&from->frames.count);
    atomic_store(&to->frames.count, 0);
    memcpy(to->frames.of, from->frames.of, count * sizeof(*to->frames.of));
    memcpy(to->frames.lines, from->frames.lines, count * sizeof(*to->frames.lines));
    to->asked = from->asked;
    atomic_store(&to->signalled, atomic_load(&from->signalled));
    atomic_store(&to->reached, atomic_load(&from->reached));
    atomic_store(&to->used, atomic_load(&from->used));
    atomic_store(&to->in_regexp, atomic_load(&from->in_regexp));
    atomic_store(&to->frames.count, (int)count);
}

static void ask_anew(struct sampler *sampler, deadline_t now)
{
    struct sample *sample = &sampler->samples[sampler->used++];
    atomic_store(&sample->frames.count, 0);
    atomic_store(&sample->signalled, 0);
    atomic_store(&sample->reached, false);
    atomic_store(&sample->in_regexp, false);
    sample->asked = now;
    atomic_store(&sampler->asked, sampler->used);
}

bool sampler_ask(struct sampler *sampler, deadline_t now)
{
    if (atomic_load(&sampler->busy)) return true;
    bool answered = !atomic_load(&sampler->asked), full = answered && sampler->used == SAMPLES;
    if (full) {
        for (int i = 1; 2 * i < SAMPLES; i++)
            copy_sample(&sampler->samples[i], &sampler->samples[2 * i]);
        sampler->used = SAMPLES / 2;
    }
    if (answered) ask_anew(sampler, now);
    if (answered || !atomic_load(&sampler->samples[sampler->used - 1].frames.count))
        send_signal(atomic_load(&sampler->thread));
    return !full;
}

bool sampler_end(struct sampler *sampler)
{
    atomic_store(&sampler->asked, 0);
    return !atomic_load(&sampler->busy);
}

void samplers_forget(void)
{
    for (int i = 0; i < SAMPLERS; i++) {
        for (int number = 0; sampler_end(&table[i]) && number < SAMPLES; number++)
            atomic_store(&table[i].samples[number].frames.count, 0);
    }
}

void sampler_mark(void)
{
    for (int i = 0; i < SAMPLERS; i++) {
        for (int number = 0; number < SAMPLES; number++) {
            const struct frames *frames = &table[i].samples[number].frames;
            int count = atomic_load(&frames->count);
            for (int frame = 0; frame < count; frame++)
                rb_gc_mark(frames->of[frame]);
        }
    }
}
