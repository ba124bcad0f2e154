// Client: a connection, for Ruby. Each method that starts a job is followed by a wait for the pipe, and then #finish.
#include "client.h"
#include "connecting.h"

#include <errno.h>
#include <fcntl.h>
#include <ruby/io.h>
#include <ruby/version.h>
#include <string.h>
#include <unistd.h>

// ---- the object

static void odbc_client_mark(void *at)
{
    rb_gc_mark_movable(((struct odbc_client *)at)->handle);
}

static void odbc_client_compact(void *at)
{
    struct odbc_client *client = at;
    client->handle = rb_gc_location(client->handle);
}

static void free_link(void *at)
{
    struct odbc_client *client = at;
    if (client->session && !odbc_session_forked(client->session)) {
        odbc_session_end(client->session);
        odbc_session_unreference(client->session);
    }
    ruby_xfree(client);
}

static const rb_data_type_t client_type = {
    .wrap_struct_name = "heddle_odbc_link",
    .function = {.dmark = odbc_client_mark, .dfree = free_link, .dcompact = odbc_client_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

struct odbc_client *odbc_client_of(VALUE self)
{
    return rb_check_typeddata(self, &client_type);
}

static VALUE odbc_client_allocate(VALUE klass)
{
    struct odbc_client *client;
    VALUE self = TypedData_Make_Struct(klass, struct odbc_client, &client_type, client);
    client->handle = Qnil;
    client->reader = -1;
    return self;
}

/* @api private Client.new(reader, writer, encoding, local): the ends of a pipe, of which the writing one may be closed
 * afterwards; the encoding of text for the narrow functions, or nil for the wide ones. */
static VALUE initialize(VALUE self, VALUE reader, VALUE writer, VALUE encoding, VALUE local)
{
    struct odbc_client *client = odbc_client_of(self);
    client->local = RTEST(local);
    client->encoding = NIL_P(encoding) ? rb_utf8_encoding() : rb_to_encoding(encoding);
    client->reader = NUM2INT(reader);
    int wake = fcntl(NUM2INT(writer), F_DUPFD_CLOEXEC, 0);
    if (wake < 0) rb_sys_fail("cannot keep a pipe for an ODBC connection");
    client->session = odbc_session_new(NIL_P(encoding), wake);
    if (client->session) return self;
    close(wake);
    rb_raise(rb_eThreadError, "cannot start a thread for an ODBC connection");
}

// ---- jobs

static struct odbc_session *ready(VALUE self)
{
    struct odbc_session *session = odbc_client_of(self)->session;
    if (odbc_session_forked(session)) {
        rb_raise(rb_eIOError, "this ODBC connection was opened before fork, and belongs to the parent process: "
                              "connect again in the child");
    }
    pthread_mutex_lock(&session->lock);
    bool ending = session->ending, busy = session->busy;
    pthread_mutex_unlock(&session->lock);
    if (ending) rb_raise(rb_eIOError, "this ODBC connection is closed");
    if (busy) rb_raise(rb_eThreadError, "the driver is still busy with an earlier call");
    session->job.statement = NULL;
    return session;
}

// Takes the byte that tells of a job's end. One that stayed would make the waits for all later jobs spin.
static void take_byte(struct odbc_client *client)
{
    char byte;
    ssize_t count;
    do
        count = read(client->reader, &byte, 1);
    while (count < 0 && errno == EINTR);
    client->unanswered = false;
}

static VALUE start(VALUE self, VALUE handle, void (*perform)(struct odbc_session *, struct odbc_job *))
{
    struct odbc_client *client = odbc_client_of(self);
    if (client->unanswered) take_byte(client); // the waiter of the last job was interrupted after the job's end
    client->unanswered = true;
    RB_OBJ_WRITE(self, &client->handle, handle);
    if (!NIL_P(handle)) client->session->job.statement = odbc_handle_of(handle)->statement;
    client->session->job.perform = perform;
    odbc_session_start(client->session);
    return handle;
}

static VALUE own_handle(VALUE handle)
{
    if (!odbc_handle_of(handle)->statement) rb_raise(rb_eIOError, "this statement is closed");
    return handle;
}

/* @api private Starts to connect. */
static VALUE client_connect(VALUE self, VALUE string, VALUE seconds)
{
    struct odbc_session *session = ready(self);
    session->job.number = NUM2INT(seconds);
    odbc_put_text(odbc_client_of(self), &session->job.text, StringValue(string));
    return start(self, Qnil, odbc_perform_connect);
}

static VALUE new_handle(VALUE self, VALUE alone)
{
    VALUE handle = odbc_handle_new(self);
    odbc_handle_of(handle)->statement->alone = RTEST(alone);
    return handle;
}

/* @api private Starts to prepare a statement; +alone+: the driver is not asked for another result behind one without
 * rows. @return [Handle] */
static VALUE client_prepare(VALUE self, VALUE sql, VALUE alone)
{
    struct odbc_session *session = ready(self);
    odbc_put_text(odbc_client_of(self), &session->job.text, StringValue(sql));
    return start(self, new_handle(self, alone), odbc_perform_prepare);
}

/* @api private Starts to prepare and run a statement, and to fetch up to so many rows; +alone+: see #prepare.
 * @return [Handle] */
static VALUE client_run(VALUE self, VALUE sql, VALUE values, VALUE limit, VALUE alone)
{
    struct odbc_session *session = ready(self);
    Check_Type(values, T_ARRAY);
    session->job.limit = NUM2SIZET(limit);
    odbc_put_text(odbc_client_of(self), &session->job.text, StringValue(sql));
    odbc_put_parameters(odbc_client_of(self), &session->job.parameters, values);
    return start(self, new_handle(self, alone), odbc_perform_run);
}

/* @api private Starts to run a statement that is prepared. @return [Handle] */
static VALUE client_execute(VALUE self, VALUE handle, VALUE values, VALUE limit)
{
    struct odbc_session *session = ready(self);
    Check_Type(values, T_ARRAY);
    session->job.limit = NUM2SIZET(limit);
    odbc_put_parameters(odbc_client_of(self), &session->job.parameters, values);
    return start(self, own_handle(handle), odbc_perform_run);
}

/* @api private Starts to fetch, until so many rows wait. @return [Handle] */
static VALUE client_fetch(VALUE self, VALUE handle, VALUE limit)
{
    ready(self)->job.limit = NUM2SIZET(limit);
    return start(self, own_handle(handle), odbc_perform_fetch);
}

/* @api private Starts to go on to the statement's next result. @return [Handle] */
static VALUE client_next_result(VALUE self, VALUE handle, VALUE limit)
{
    ready(self)->job.limit = NUM2SIZET(limit);
    return start(self, own_handle(handle), odbc_perform_next);
}

/* @api private Starts to close the statement's cursor. @return [Handle] */
static VALUE client_close_cursor(VALUE self, VALUE handle)
{
    ready(self);
    return start(self, own_handle(handle), odbc_perform_close);
}

/* @api private Starts SQLTables; a name may be nil. @return [Handle] */
static VALUE client_tables(VALUE self, VALUE names, VALUE limit)
{
    struct odbc_session *session = ready(self);
    Check_Type(names, T_ARRAY);
    session->job.limit = NUM2SIZET(limit);
    for (int i = 0; i < ODBC_NAMES; i++) {
        VALUE name = rb_ary_entry(names, i);
        session->job.named[i] = !NIL_P(name);
        if (!NIL_P(name)) odbc_put_text(odbc_client_of(self), &session->job.names[i], StringValue(name));
    }
    return start(self, odbc_handle_new(self), odbc_perform_tables);
}

/* @api private Starts a transaction; 0 for the connection's own isolation. */
static VALUE client_begin(VALUE self, VALUE isolation)
{
    ready(self)->job.number = NUM2INT(isolation);
    return start(self, Qnil, odbc_perform_begin);
}

/* @api private Starts to commit, or to roll back. */
static VALUE client_end(VALUE self, VALUE commits)
{
    ready(self);
    return start(self, Qnil, RTEST(commits) ? odbc_perform_commit : odbc_perform_rollback);
}

/* @api private Starts to ask whether the connection is dead; #finish returns false then. */
static VALUE client_check(VALUE self)
{
    ready(self)->job.answer = 0;
    return start(self, Qnil, odbc_perform_check);
}

/* @api private Starts to free released statements. */
static VALUE client_flush(VALUE self)
{
    ready(self);
    return start(self, Qnil, odbc_perform_nothing);
}

// ---- answers

static VALUE failure_of(const struct odbc_diagnostics *diagnostics)
{
    VALUE messages = rb_ary_new();
    const char *at = diagnostics->text.at, *end = at + diagnostics->text.length;
    while (at < end) {
        size_t length = strlen(at);
        rb_ary_push(messages, rb_utf8_str_new(at, (long)length));
        at += length + 1;
    }
    return rb_ary_new_from_args(3, rb_str_new_cstr(diagnostics->state), INT2NUM(diagnostics->code), messages);
}

/* @api private Ends a job that is done, of which the pipe has told.
 *
 * @return [true, false, Array(String, Integer, Array<String>)] false for a dead connection; of a failure the SQLSTATE,
 *   the driver's code and the messages
 * @raise [ArgumentError] the statement was not run, for there are more values than parameters, or fewer; [IOError] the
 *   connection was closed meanwhile: the number of the pipe may be another file's */
static VALUE client_finish(VALUE self)
{
    struct odbc_client *client = odbc_client_of(self);
    struct odbc_session *session = client->session;
    if (odbc_session_forked(session) || odbc_session_busy(session))
        rb_raise(rb_eThreadError, "the driver is still busy with this call");
    if (client->reader < 0) rb_raise(rb_eIOError, "this ODBC connection was closed meanwhile");
    if (client->unanswered) take_byte(client);
    VALUE handle = client->handle;
    client->handle = Qnil;
    if (session->job.miscounted) {
        rb_raise(rb_eArgError, "wrong number of values for the statement (given %" PRIuSIZE ", expected %d)",
                 session->job.parameters.count, session->job.statement->parameter_count);
    }
    RB_GC_GUARD(handle);
    if (session->job.failed) return failure_of(&session->job.diagnostics);
    return session->job.answer ? Qfalse : Qtrue;
}

/* @api private @return [Boolean] whether a call of the driver has not come to its end */
static VALUE client_is_busy(VALUE self)
{
    struct odbc_session *session = odbc_client_of(self)->session;
    return !odbc_session_forked(session) && odbc_session_busy(session) ? Qtrue : Qfalse;
}

/* @api private Has the call end early. @return [Integer] how many times SQLCancel was called for it */
static VALUE client_cancel(VALUE self)
{
    struct odbc_session *session = odbc_client_of(self)->session;
    return INT2FIX(odbc_session_forked(session) ? 0 : odbc_session_cancel(session));
}

/* @api private Disconnects, after the call that runs, which is cancelled; does not wait. The pipe may be closed
 * afterwards. */
static VALUE client_disconnect(VALUE self)
{
    struct odbc_client *client = odbc_client_of(self);
    client->reader = -1;
    if (!odbc_session_forked(client->session)) odbc_session_end(client->session);
    return Qnil;
}

/* @api private @return [Boolean] */
static VALUE client_has_left(VALUE self)
{
    struct odbc_session *session = odbc_client_of(self)->session;
    if (odbc_session_forked(session)) return Qtrue;
    pthread_mutex_lock(&session->lock);
    bool ending = session->ending;
    pthread_mutex_unlock(&session->lock);
    return ending ? Qtrue : Qfalse;
}

/* @api private @return [Boolean] whether the connection belongs to a parent of this process */
static VALUE client_is_forked(VALUE self)
{
    return odbc_session_forked(odbc_client_of(self)->session) ? Qtrue : Qfalse;
}

/* @api private @return [Boolean] whether the statement is prepared on this connection */
static VALUE client_owns(VALUE self, VALUE handle)
{
    struct odbc_session *session = odbc_client_of(self)->session;
    struct odbc_statement *statement = odbc_handle_of(handle)->statement;
    return statement && statement->session == session ? Qtrue : Qfalse;
}

/* @api private @return [Integer] statements that the next job frees */
static VALUE client_closes(VALUE self)
{
    struct odbc_session *session = odbc_client_of(self)->session;
    if (odbc_session_forked(session)) return INT2FIX(0);
    pthread_mutex_lock(&session->lock);
    size_t count = session->releases;
    pthread_mutex_unlock(&session->lock);
    return SIZET2NUM(count);
}

/* @api private Refuses texts with a NUL from now on. */
static VALUE client_refuse_nul(VALUE self)
{
    odbc_client_of(self)->ends_at_nul = true;
    return Qnil;
}

/* @api private Reads texts as bytes in UTF-8 from now on. */
static VALUE client_read_utf8(VALUE self)
{
    struct odbc_session *session = ready(self);
    session->reads_utf8 = session->wide;
    return Qnil;
}

/* @api private Has each statement prepared again before it runs: the server has closed all prepared statements. */
static VALUE client_forget_prepared(VALUE self)
{
    ready(self)->epoch++;
    return Qnil;
}

/* @api private @return [Boolean] whether transactions end by commit or rollback now */
static VALUE client_is_manual(VALUE self)
{
    return odbc_client_of(self)->session->manual ? Qtrue : Qfalse;
}

/* @api private What the driver said of itself at the connect.
 *
 * @return [Array(Array<String>, Array<Integer>)] texts: names of the DBMS, its version, the driver, the quote of
 *   identifiers, the server, the escape of patterns; numbers: the isolations, the default one, the transactions' kind,
 *   and how many statements may be active */
static VALUE client_abilities(VALUE self)
{
    const struct odbc_client *client = odbc_client_of(self);
    const struct odbc_abilities *abilities = &client->session->abilities;
    VALUE texts = rb_ary_new();
    const char *at = abilities->text.at, *end = at + abilities->text.length;
    while (at < end) {
        size_t length = strlen(at);
        rb_ary_push(texts, rb_enc_str_new(at, (long)length, client->encoding));
        at += length + 1;
    }
    VALUE numbers = rb_ary_new_from_args(4, UINT2NUM(abilities->isolations), UINT2NUM(abilities->isolation),
                                         UINT2NUM(abilities->transactions), UINT2NUM(abilities->activities));
    return rb_ary_new_from_args(2, texts, numbers);
}

static void rest(VALUE unused)
{
    (void)unused;
    odbc_sessions_rest();
}

static void define_jobs(VALUE client)
{
    rb_define_method(client, "connect", client_connect, 2);
    rb_define_method(client, "prepare", client_prepare, 2);
    rb_define_method(client, "run", client_run, 4);
    rb_define_method(client, "execute", client_execute, 3);
    rb_define_method(client, "fetch", client_fetch, 2);
    rb_define_method(client, "next_result", client_next_result, 2);
    rb_define_method(client, "close_cursor", client_close_cursor, 1);
    rb_define_method(client, "tables", client_tables, 2);
    rb_define_method(client, "begin_transaction", client_begin, 1);
    rb_define_method(client, "end_transaction", client_end, 1);
    rb_define_method(client, "check", client_check, 0);
    rb_define_method(client, "flush", client_flush, 0);
}

static void define_states(VALUE client)
{
    rb_define_method(client, "finish", client_finish, 0);
    rb_define_method(client, "busy?", client_is_busy, 0);
    rb_define_method(client, "cancel", client_cancel, 0);
    rb_define_method(client, "disconnect", client_disconnect, 0);
    rb_define_method(client, "left?", client_has_left, 0);
    rb_define_method(client, "forked?", client_is_forked, 0);
    rb_define_method(client, "owns?", client_owns, 1);
    rb_define_method(client, "closes", client_closes, 0);
    rb_define_method(client, "manual?", client_is_manual, 0);
    rb_define_method(client, "refuse_nul", client_refuse_nul, 0);
    rb_define_method(client, "read_utf8", client_read_utf8, 0);
    rb_define_method(client, "forget_prepared", client_forget_prepared, 0);
    rb_define_method(client, "abilities", client_abilities, 0);
}

// As in ext/heddle/init.c: code that was compiled for one minor version of Ruby may load in another, and crashes there.
#define COMPILED_FOR "compiled for Ruby " STRINGIZE(RUBY_API_VERSION_MAJOR) "." STRINGIZE(RUBY_API_VERSION_MINOR)

RUBY_FUNC_EXPORTED void Init_heddle_odbc(void)
{
    if (ruby_api_version[0] != RUBY_API_VERSION_MAJOR || ruby_api_version[1] != RUBY_API_VERSION_MINOR)
        rb_raise(rb_eLoadError, "heddle_odbc.so is " COMPILED_FOR ", and this is Ruby %d.%d", ruby_api_version[0],
                 ruby_api_version[1]);
    VALUE db = rb_path2class("Heddle::DB");
    VALUE module = rb_define_module_under(db, "ODBC");
    VALUE client = rb_define_class_under(module, "Client", rb_cObject);
    rb_define_alloc_func(client, odbc_client_allocate);
    rb_define_method(client, "initialize", initialize, 4);
    define_jobs(client);
    define_states(client);
    odbc_handle_define(module);
    odbc_parameters_define(module);
    odbc_values_define();
    if (!odbc_sessions_begin()) rb_raise(rb_eNoMemError, "no memory for ODBC");
    rb_set_end_proc(rest, Qnil);
}
