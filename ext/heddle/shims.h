// Differences between the supported Ruby versions. Each comment names the version that ends the need for the shim.
#ifndef HEDDLE_SHIMS_H
#define HEDDLE_SHIMS_H

#include <ruby.h>
#include <ruby/debug.h>
#include <ruby/encoding.h>
#include <ruby/fiber/scheduler.h>
#include <ruby/io.h>
#include <ruby/io/buffer.h>
#include <ruby/thread.h>
#include <ruby/version.h>

// No header declares it; exported since 3.1, public from 3.3 on. # RUBY_VERSION >= 3.3
#if RUBY_API_VERSION_CODE < 30300
int rb_io_descriptor(VALUE io);
#endif

// No header declares it; exported for Ruby's own extensions. Whether a signal's handler is still to be run.
int rb_thread_check_trap_pending(void);

// The descriptor of an IO, or -1 for a closed IO, for which rb_io_descriptor raises. Needed where IO#close does not
// tell the scheduler. # HAVE_RB_IO_T_RBUF: Ruby 4.1 hides the members of rb_io_t
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // for `fd` and `mode`, which no function returns
static inline int shim_open_descriptor(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    return RFILE(io)->fptr ? RFILE(io)->fptr->fd : -1;
#else
    return RTEST(rb_io_closed_p(io)) ? -1 : rb_io_descriptor(io);
#endif
}

// Returns whether a close of the IO has begun or ended. IO#close waits until other threads have stopped using the IO;
// when that wait is interrupted, Ruby 4.0 never closes the descriptor. # RUBY_VERSION < 4.0: IO#close gives up the
// descriptor first
static inline bool shim_close_began(VALUE io)
{
#if RUBY_API_VERSION_CODE < 40000
    return shim_open_descriptor(io) < 0;
#else
    return RTEST(rb_io_closed_p(io));
#endif
}

// Whether IO#close in a trap handler raises ThreadError instead of waiting for the threads that use the IO, which then
// crash. # RUBY_VERSION >= 4.0
#define SHIM_TRAP_BREAKS_CLOSE (RUBY_API_VERSION_CODE >= 30200 && RUBY_API_VERSION_CODE < 40000)

// Whether other Ractors that collect garbage damage an ObjectSpace::WeakMap, whose keys may include objects that are
// about to be swept. # RUBY_VERSION >= 3.3
#define SHIM_WEAK_MAPS_BREAK (RUBY_API_VERSION_CODE < 30300)

// IO#autoclose? (whether IO#close closes the descriptor of an open IO) and IO#autoclose=, also for a frozen IO. Needed
// where IOClose is. # RUBY_VERSION >= 4.1: unknown
static inline bool shim_autoclose(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    return !(RFILE(io)->fptr->mode & 0x00010000); // FMODE_EXTERNAL from 3.3 on; no public name before
#else
    (void)io;
    return false;
#endif
}

static inline void shim_set_autoclose(VALUE io, bool closes)
{
#ifdef HAVE_RB_IO_T_RBUF
    rb_io_t *file = RFILE(io)->fptr;
    file->mode = closes ? file->mode & ~0x00010000 : file->mode | 0x00010000;
#else
    (void)io, (void)closes;
#endif
}

// Whether IO#close ends the waits of fibers, through the hook fiber_interrupt of their scheduler. # RUBY_VERSION >= 4.0
#define SHIM_CLOSE_ENDS_WAITS (RUBY_API_VERSION_CODE >= 40000)

// Takes the descriptor number from an IO whose close has begun. On Ruby 4.0 an interrupted close keeps the number:
// closing the IO again would make the loops end the waits on whichever file has that number by then. # RUBY_VERSION <
// 4.0: the IO has already lost its number
static inline void shim_give_up_descriptor(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    RFILE(io)->fptr->fd = -1;
#else
    (void)io;
#endif
}
#pragma GCC diagnostic pop

// Makes a socket object of this class that owns the descriptor, as BasicSocket.for_fd does. `numeric`:
// do_not_reverse_lookup. Calls no method, because Ruby checks for interrupts there. Either this function raises and the
// caller keeps the descriptor, or the object owns the descriptor and `*descriptor` is -1. # RUBY_VERSION >= 3.3:
// rb_io_open_descriptor
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static inline VALUE shim_new_socket(VALUE klass, int *descriptor, bool numeric)
{
    int mode =
        FMODE_READWRITE | FMODE_DUPLEX | FMODE_SYNC | (numeric ? 0x00000100 : 0); // FMODE_NOREVLOOKUP has no header
    rb_update_max_fd(*descriptor);
#if RUBY_API_VERSION_CODE < 30300
    VALUE socket = rb_obj_alloc(klass);
    rb_io_t *file;
    MakeOpenFile(socket, file);
    file->mode = mode;
    file->fd = *descriptor;
#else
    VALUE socket = rb_io_open_descriptor(klass, *descriptor, mode, Qnil, Qnil, NULL);
#endif
    *descriptor = -1;
    rb_io_ascii8bit_binmode(socket);
    return socket;
}
#pragma GCC diagnostic pop

// IO#timeout of this IO, or nil. # RUBY_VERSION < 3.2: always nil
static inline VALUE shim_timeout(VALUE io)
{
#if RUBY_API_VERSION_CODE < 30200
    (void)io;
    return Qnil;
#else
    return rb_io_timeout(io);
#endif
}

static inline bool shim_has_timeout(VALUE io)
{
    return !NIL_P(shim_timeout(io));
}

// Raises the error that Ruby raises when IO#timeout is over. # RUBY_VERSION < 3.2: does nothing, there is no IO#timeout
static inline void shim_raise_timeout(void)
{
#if RUBY_API_VERSION_CODE >= 30200
    rb_raise(rb_eIOTimeoutError, "Blocking operation timed out!");
#endif
}

// The result of the hook io_wait when IO#timeout is over. # RUBY_VERSION < 3.4: raises, since Ruby turns false into
// Errno::EAGAIN
static inline VALUE shim_answer_timeout(void)
{
#if RUBY_API_VERSION_CODE < 30400
    shim_raise_timeout();
#endif
    return Qfalse;
}

// Returns whether these bytes lie, or may lie, in the IO's own buffer. # RUBY_VERSION >= 4.1: unknown
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static inline bool shim_own_buffer(VALUE io, const void *bytes)
{
#ifdef HAVE_RB_IO_T_RBUF
    const rb_io_t *file = RFILE(io)->fptr;
    if (!file || bytes == file->rbuf.ptr) return true;
    const char *held = file->wbuf.ptr;
    return held && (const char *)bytes >= held && (const char *)bytes < held + file->wbuf.capa;
#else
    (void)io, (void)bytes;
    return true;
#endif
}

// Returns whether the IO has bytes that IO#close would write. `io`: of rb_io_get_write_io. # RUBY_VERSION >= 4.1:
// unknown
static inline bool shim_unsent(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    const rb_io_t *file = RFILE(io)->fptr;
    return file && file->fd >= 0 && file->wbuf.len > 0;
#else
    (void)io;
    return false;
#endif
}

// The descriptor of an open IO whose bytes can be received directly: no read-ahead, no conversion, no unsent bytes, no
// timeout. Otherwise -1. # RUBY_VERSION >= 4.1: unknown
static inline int shim_plain_reader(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    rb_io_t *file = RFILE(io)->fptr;
    if (!file || file->fd < 0 || OBJ_FROZEN(io) || shim_has_timeout(io)) return -1;
    if (file->rbuf.len || file->cbuf.len || file->wbuf.len || file->tied_io_for_writing) return -1;
    return file->fd;
#else
    (void)io;
    return -1;
#endif
}

// Returns whether the IO is open for reading (FMODE_READABLE, which IO#close_read ends) or for writing
// (FMODE_WRITABLE). # RUBY_VERSION >= 4.1: unknown
static inline bool shim_open_for(VALUE io, int mode)
{
#ifdef HAVE_RB_IO_T_RBUF
    return RFILE(io)->fptr && RFILE(io)->fptr->mode & mode;
#else
    (void)io, (void)mode;
    return false;
#endif
}

// Like shim_plain_reader, for sending: no bytes held back, no conversion. # RUBY_VERSION >= 4.1: unknown
static inline int shim_plain_writer(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    rb_io_t *file = RFILE(io)->fptr;
    int wanted = FMODE_WRITABLE | FMODE_SYNC;
    if (!file || file->fd < 0 || OBJ_FROZEN(io) || ((int)file->mode & wanted) != wanted) return -1;
    if (file->wbuf.len || RTEST(file->write_lock) || file->tied_io_for_writing || shim_has_timeout(io)) return -1;
    if (file->encs.enc2 || file->encs.ecflags) return -1;
    if (file->encs.enc && file->encs.enc != rb_ascii8bit_encoding()) return -1;
    return file->fd;
#else
    (void)io;
    return -1;
#endif
}

// The path that the IO was opened with, for error messages; or nil. # RUBY_VERSION >= 3.2: rb_io_path
static inline VALUE shim_path(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    VALUE path = RFILE(io)->fptr ? RFILE(io)->fptr->pathv : Qnil;
    return RTEST(path) ? path : Qnil;
#else
    return rb_io_path(io);
#endif
}
#pragma GCC diagnostic pop

// Runs a function without the GVL. IO#close in another thread interrupts the function; pending interrupts are raised
// afterwards. No header declares the two functions, which are exported for Ruby's own extensions: the first since 1.9,
// the second, which IO#close can interrupt, since 4.0. # RUBY_VERSION >= 4.0
#if RUBY_API_VERSION_CODE < 40000
VALUE rb_thread_io_blocking_region(VALUE (*function)(void *), void *argument, int descriptor);
#else
VALUE rb_io_blocking_region(struct rb_io *io, VALUE (*function)(void *), void *argument);
#endif
static inline VALUE shim_io_blocking_region(VALUE io, VALUE (*function)(void *), void *argument, int descriptor)
{
#if RUBY_API_VERSION_CODE < 40000
    (void)io;
    return rb_thread_io_blocking_region(function, argument, descriptor);
#else
    (void)descriptor;
    return rb_io_blocking_region(RFILE(io)->fptr, function, argument);
#endif
}

// Returns whether Ruby threads may move between native threads: with RUBY_MN_THREADS=1, all but the main thread. #
// RUBY_VERSION < 3.3: never
static inline bool shim_threads_migrate(void)
{
    const char *wanted = getenv("RUBY_MN_THREADS");
    return RUBY_API_VERSION_CODE >= 30300 && wanted && atoi(wanted) != 0;
}

// Makes this thread call a function when it next checks for interrupts: a postponed job, during which Ruby runs no trap
// handler. False when Ruby has no room for another job. # RUBY_VERSION >= 3.3: rb_postponed_job_trigger
static inline bool shim_postpone(void (*function)(void *))
{
#if RUBY_API_VERSION_CODE < 30300
    return rb_postponed_job_register_one(0, function, NULL) != 0;
#else
    rb_postponed_job_handle_t job = rb_postponed_job_preregister(0, function, NULL); // always the same
    if (job == POSTPONED_JOB_HANDLE_INVALID) return false;
    rb_postponed_job_trigger(job);
    return true;
#endif
}

// The same from a native thread that Ruby does not know. # RUBY_VERSION < 3.3: does nothing
static inline void shim_postpone_from_outside(void (*function)(void *))
{
#if RUBY_API_VERSION_CODE < 30300
    (void)function;
#else
    shim_postpone(function);
#endif
}

// Returns whether Ruby calls io_read and similar hooks with (offset, length) for a single transfer, as 4.1 does.
// Earlier versions pass (length, offset) and expect as many transfers as that takes. The version of IO::Buffer tells
// which. # RUBY_VERSION >= 4.1
static inline bool shim_single_transfers(void)
{
    ID version = rb_intern("VERSION");
    VALUE buffer = rb_const_get(rb_cObject, rb_intern("IO"));
    buffer = rb_const_get(buffer, rb_intern("Buffer"));
    return rb_const_defined_at(buffer, version) && NUM2INT(rb_const_get_at(buffer, version)) >= 3;
}

#endif
