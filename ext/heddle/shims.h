// Every difference between the Rubies that we support. Each says which version ends the need for it.
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

// Declared nowhere, exported since 3.1; public from 3.3 on. # RUBY_VERSION >= 3.3
#if RUBY_API_VERSION_CODE < 30300
int rb_io_descriptor(VALUE io);
#endif

// Declared nowhere, exported for Ruby's own extensions: whether the handler of a signal is still to be run.
int rb_thread_check_trap_pending(void);

// The descriptor of an IO, -1 for a closed one: rb_io_descriptor raises for that. Needed where IO#close does not tell
// the scheduler. # HAVE_RB_IO_T_RBUF: Ruby 4.1 hides the members of rb_io_t
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // of `fd` and `mode`, for which there is no other way
static inline int shim_open_descriptor(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    return RFILE(io)->fptr ? RFILE(io)->fptr->fd : -1;
#else
    return RTEST(rb_io_closed_p(io)) ? -1 : rb_io_descriptor(io);
#endif
}

// Whether a close of the IO has begun, or ended. Interrupted in the middle, where it waits for those who use the IO in
// other threads, Ruby 4.0 never closes the descriptor. # RUBY_VERSION < 4.0: begins with giving up the descriptor
static inline bool shim_close_began(VALUE io)
{
#if RUBY_API_VERSION_CODE < 40000
    return shim_open_descriptor(io) < 0;
#else
    return RTEST(rb_io_closed_p(io));
#endif
}

// Whether IO#close in a trap handler raises ThreadError instead of waiting for the threads that use the IO, which crash
// then. # RUBY_VERSION >= 4.0
#define SHIM_TRAP_BREAKS_CLOSE (RUBY_API_VERSION_CODE >= 30200 && RUBY_API_VERSION_CODE < 40000)

// IO#autoclose?, whether IO#close closes the descriptor of an open IO, and IO#autoclose=, also of a frozen one. Needed
// where IOClose is. # RUBY_VERSION >= 4.1: cannot be told
static inline bool shim_autoclose(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    return !(RFILE(io)->fptr->mode & 0x00010000); // FMODE_EXTERNAL from 3.3 on; before, it has no public name
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

// Takes the number from an IO whose close has begun. One that was interrupted keeps it on Ruby 4.0: another close of
// the IO would have the loops end the waits of whatever file has the number by then. # RUBY_VERSION < 4.0: it has none
// any more
static inline void shim_give_up_descriptor(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    RFILE(io)->fptr->fd = -1;
#else
    (void)io;
#endif
}
#pragma GCC diagnostic pop

// A socket object of this class that owns the number, as BasicSocket.for_fd makes one. `numeric`:
// do_not_reverse_lookup. No method is called, in which Ruby would look for interrupts: either this raises and the
// number is the caller's, or it is the object's and `*descriptor` is -1. # RUBY_VERSION >= 3.3: rb_io_open_descriptor
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

// The IO's own timeout, IO#timeout=; or nil. # RUBY_VERSION < 3.2: always nil
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

// Raises what Ruby does when that is over. # RUBY_VERSION < 3.2: never is
static inline void shim_raise_timeout(void)
{
#if RUBY_API_VERSION_CODE >= 30200
    rb_raise(rb_eIOTimeoutError, "Blocking operation timed out!");
#endif
}

// What the hook io_wait answers when it is over. # RUBY_VERSION < 3.4: raises, for Ruby makes Errno::EAGAIN of false
static inline VALUE shim_answer_timeout(void)
{
#if RUBY_API_VERSION_CODE < 30400
    shim_raise_timeout();
#endif
    return Qfalse;
}

// Whether these bytes are, or may be, in a buffer of the IO itself. # RUBY_VERSION >= 4.1: cannot be told
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

// The descriptor of an open IO whose bytes can be received as they come: nothing is read ahead, nothing converted,
// nothing that has to be sent first, and there is no timeout. -1 for another. # RUBY_VERSION >= 4.1: cannot be told
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

// Whether it is open for reading, which IO#close_read ends. # RUBY_VERSION >= 4.1: cannot be told
static inline bool shim_reads(VALUE io)
{
#ifdef HAVE_RB_IO_T_RBUF
    return RFILE(io)->fptr && RFILE(io)->fptr->mode & FMODE_READABLE;
#else
    (void)io;
    return false;
#endif
}

// As shim_plain_reader, for bytes that are to be sent: none are held back, none converted. # RUBY_VERSION >= 4.1:
// cannot be told
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

// What such an IO was opened as, for errors; or nil. # RUBY_VERSION >= 3.2: rb_io_path
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

// Runs a function without the GVL; IO#close in another thread interrupts it, and interrupts are raised afterwards.
// Declared nowhere, exported for Ruby's own extensions: the first since 1.9, the second, which IO#close knows of, since
// 4.0. # RUBY_VERSION >= 4.0
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

// Whether threads of Ruby's may change their native threads between two calls: with RUBY_MN_THREADS=1, all but the main
// one. # RUBY_VERSION < 3.3: never
static inline bool shim_threads_migrate(void)
{
    const char *wanted = getenv("RUBY_MN_THREADS");
    return RUBY_API_VERSION_CODE >= 30300 && wanted && atoi(wanted) != 0;
}

// After rb_protect: whether a kill ends this thread, and Ruby will neither close its scheduler nor announce its end, as it does for
// a thread that comes to its end by itself. # RUBY_VERSION >= 3.3
static inline bool shim_thread_dies_silently(void)
{
    return RUBY_API_VERSION_CODE < 30300 && FIXNUM_P(rb_errinfo());
}

// Has this thread call a function when it looks for interrupts next: a postponed job, during which Ruby runs no trap
// handler. False where Ruby has no room for another one. # RUBY_VERSION >= 3.3: rb_postponed_job_trigger
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

// Whether Ruby calls io_read and its like with (offset, length) for a single transfer, as 4.1 does; before, it is
// (length, offset) for as many as that takes. The version of IO::Buffer tells. # RUBY_VERSION >= 4.1
static inline bool shim_single_transfers(void)
{
    ID version = rb_intern("VERSION");
    VALUE buffer = rb_const_get(rb_cObject, rb_intern("IO"));
    buffer = rb_const_get(buffer, rb_intern("Buffer"));
    return rb_const_defined_at(buffer, version) && NUM2INT(rb_const_get_at(buffer, version)) >= 3;
}

#endif
