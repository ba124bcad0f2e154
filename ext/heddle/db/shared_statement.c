// Statements of several tasks in flight on a connection: see doc/adr/0049-statements-share-connections.md.
//
// A statement's request is written at once, between two switches of tasks. The tasks whose statements are in flight on
// a connection stand in line. The first one reads: it drops the answers of tasks that have left, reads its own, and
// wakes the next. So each answer is read by the task that asked, no task reads for all, and a reader that is
// interrupted leaves the rest of its answer to the next in line.
//
// The GVL guards the line: other tasks and threads run only while a task waits for its turn or for the server, and in
// Ruby code that makes or reads values.
#include "db/connection.h"
#include "db/multiplexer.h"
#include "db/protocol.h"
#include "os/fork.h"
#include "protect.h"
#include "scope/deadline_scope.h"
#include "task/current.h"
#include "task/join.h"

struct shared_run {
    VALUE multiplexer, sql, arguments;
    VALUE asker;
    struct stream *stream;
    uint64_t previous, last; // replies, by number: the last one before its answer, and the last one of it
    uint64_t begins;         // of its request among the stream's bytes
    deadline_t until;        // the connection's timeout
    deadline_t before;       // the stream's limit while this one reads
    bool sends;              // it is about to send what its line has written
    bool whole;              // the statement needs a connection of its own
    bool again;              // the place is of no use: nothing was sent
    bool asked;
    bool answered;
};

static struct line *line_of_run(const struct shared_run *run)
{
    return line_of(asker_of(run->asker)->line);
}

// Whether the statement leaves nothing behind in the session of that connection.
static bool shares(VALUE connection, VALUE sql, VALUE arguments)
{
    VALUE native;
    const struct db_operations *operations = db_operations_for(connection, &native);
    return operations && operations->ask && operations->may_share(native, sql, arguments);
}

// The first of those whose requests are written lets all tasks run that are ready, and then sends what they have
// written, too.
static void gather(struct shared_run *run, struct line *line)
{
    if (line->sending) return;
    line->sending = run->sends = true;
    if (stream_gather()) line->sending = run->sends = false;
}

// Returns whether the statement is on its way.
static bool ask(struct shared_run *run)
{
    struct line *line = line_of_run(run);
    const struct db_protocol *protocol = db_protocol_of(line->native);
    if (line->closing || db_protocol_is_closed(line->native)) {
        run->again = true;
        return false;
    }
    if (!line_is_shareable(line) || !shares(line->connection, run->sql, run->arguments)) {
        run->whole = true;
        return false;
    }
    deadline_refuse_late();
    run->until = deadline_in(protocol->span);
    run->stream = stream_of(protocol->stream);
    uint32_t replies = line->operations->ask(line->native, run->sql, run->arguments, &line->closing, &run->begins);
    run->asked = replies;
    run->again = !replies;
    if (!replies) return false;
    run->last = protocol->requested;
    run->previous = run->last - replies;
    rb_ary_push(line->askers, run->asker);
    stream_end_message(run->stream);
    gather(run, line);
    return true;
}

// Raises IOError as soon as the connection is closed.
static void await_turn(struct shared_run *run)
{
    const struct line *line = line_of_run(run);
    const struct db_protocol *protocol = db_protocol_of(line->native);
    struct asker *asker = asker_of(run->asker);
    while (RARRAY_AREF(line->askers, 0) != run->asker) {
        stream_of(protocol->stream);
        if (!line->sending) stream_send_now(run->stream); // whoever was about to may have left
        stream_check_late(run->stream, run->until);
        join_wait(run->asker, &asker->sleepers, run->until);
        db_protocol_check_process((struct db_protocol *)protocol);
    }
}

static void begin_turn(struct shared_run *run)
{
    await_turn(run);
    VALUE object = asker_of(run->asker)->line;
    struct line *line = line_of(object);
    stream_of(db_protocol_of(line->native)->stream); // raises for a closed stream
    RB_OBJ_WRITE(object, &line->reader, rb_fiber_current());
    run->before = stream_bound(run->stream, run->until);
    if (run->before < run->until) stream_bound(run->stream, run->before);
}

// Ends a place in the line. The next one reads on; everybody has to know of a closed connection, and that nobody is
// about to send any more.
static void leave_line(struct shared_run *run, int *state)
{
    struct line *line = line_of_run(run);
    bool closed = db_protocol_is_closed(line->native);
    if (line->reader == asker_of(run->asker)->fiber) {
        line->reader = Qnil;
        stream_bound(run->stream, run->before);
    }
    bool all = closed || run->sends;
    if (run->sends) line->sending = run->sends = false;
    if (!remove_object(line->askers, run->asker)) return;
    for (long i = 0; i < RARRAY_LEN(line->askers) && (all || i == 0); i++) {
        VALUE next = RARRAY_AREF(line->askers, i);
        join_wake_all(next, asker_of(next)->sleepers, state);
    }
}

// Reads the replies up to that one, which are owed to nobody.
static void drop_abandoned(const struct line *line, uint64_t until)
{
    while (line_replied(line) < until)
        line->operations->drop(line->native);
}

// What an answer left to be asked of the server (types that this connection has not met) is asked by its reader alone,
// once all others in flight have their answers.
static void settle_alone(struct shared_run *run)
{
    struct line *line = line_of_run(run);
    VALUE unsettled = line->operations->unsettled ? line->operations->unsettled(line->native) : Qundef;
    int state = 0;
    if (unsettled == Qundef) return;
    line->closing = true;
    leave_line(run, &state);
    rb_ary_push(line->askers, run->asker);
    if (state) rb_jump_tag(state);
    begin_turn(run);
    drop_abandoned(line, db_protocol_of(line->native)->requested);
    line->operations->settle(line->native, unsettled, run->until);
    RB_GC_GUARD(unsettled);
}

static VALUE run_body(VALUE argument)
{
    struct shared_run *run = (struct shared_run *)argument;
    multiplexer_place(run->multiplexer, run->asker);
    if (asker_of(run->asker)->forks != fork_count()) run->again = true; // a trap handler has forked: asks anew
    if (run->again || !ask(run)) return Qnil;
    begin_turn(run);
    struct line *line = line_of_run(run);
    drop_abandoned(line, run->previous);
    VALUE result = line->operations->answer(line->native, run->sql);
    run->answered = true;
    run->whole = result == Qundef;
    if (run->whole) return Qnil;
    settle_alone(run);
    RB_GC_GUARD(result);
    return result;
}

struct run_end {
    const struct shared_run *run;
    VALUE error, result;
    bool lost, unsent, alone;
};

static VALUE check_result(VALUE argument)
{
    const struct run_end *end = (const struct run_end *)argument;
    return db_connection_checked(line_of_run(end->run)->connection, end->result, end->run->sql);
}

// Raises what the caller gets instead of the error, if that is another one.
static VALUE tell_connection(VALUE argument)
{
    const struct run_end *end = (const struct run_end *)argument;
    const struct shared_run *run = end->run;
    bool late = run->asked && run->until != DEADLINE_NEVER && run->until <= deadline_now();
    VALUE arguments[] = {end->error, end->lost ? Qtrue : Qfalse, end->unsent ? Qtrue : Qfalse, late ? Qtrue : Qfalse,
                         run->sql,   end->alone ? Qtrue : Qfalse};
    return rb_funcallv(line_of_run(run)->connection, rb_intern("shared_interrupted"), 6, arguments);
}

// An asker that leaves before its answer has come. If it was the only one in flight, the server is told to stop the
// statement, as on a connection of its own; a cancel could hit the statement of another.
static void abandon_answer(const struct shared_run *run, struct run_end *end)
{
    struct line *line = line_of_run(run);
    if (!run->answered && line->abandoned < run->last) line->abandoned = run->last;
    if (end->lost || !db_protocol_of(line->native)->owed || RARRAY_LEN(line->askers)) return;
    line->closing = true;
    end->alone = true;
    db_protocol_share(line->native, false);
    db_protocol_interrupt(line->native);
}

// Everything that an `ensure` would do. `state`: how the body ended; then whether to raise. Returns the statement's
// result. Sets `again` if the statement is to be sent anew: no byte of it was sent.
static VALUE end_run(struct shared_run *run, VALUE result, int *state, bool may_repeat)
{
    struct run_end end = {.run = run, .result = result, .error = Qnil};
    if (asker_of(run->asker)->forks != fork_count()) return Qnil; // the books are the parent's
    if (NIL_P(asker_of(run->asker)->line)) return Qnil;
    if (*state) {
        end.error = rb_errinfo();
        if (!is_exception(end.error)) end.error = Qnil;
        // A program's own code that makes or reads values may raise such errors, too.
        end.lost = !NIL_P(end.error) && stream_is_failure(end.error) && db_protocol_is_closed(line_of_run(run)->native);
        end.unsent = !run->asked || stream_sent(run->stream) <= run->begins;
    }
    if (run->asked) leave_line(run, state);
    if (*state && end.lost && end.unsent && may_repeat) {
        rb_set_errinfo(Qnil);
        *state = 0;
        run->again = true;
    } else if (*state) {
        if (run->asked) abandon_answer(run, &end);
        protect_next(tell_connection, (VALUE)&end, state);
    } else if (run->answered && RTEST(rb_obj_is_kind_of(result, rb_eException))) {
        protect_next(check_result, (VALUE)&end, state);
    }
    RB_GC_GUARD(end.error);
    return result;
}

/*
 * @api private multiplexer.run(sql, arguments) -> Result or nil
 *
 * Runs a statement among those of other tasks. nil: the statement, or a caller without a scheduler, needs a connection
 * of its own.
 */
static VALUE multiplexer_run(VALUE self, VALUE sql, VALUE arguments)
{
    Check_Type(arguments, T_ARRAY);
    if (NIL_P(context_of_fiber().scheduler)) return Qnil;
    for (bool may_repeat = true;; may_repeat = false) {
        VALUE sample = multiplexer_sample(self);
        if (!NIL_P(sample) && !shares(sample, sql, arguments)) return Qnil;
        struct shared_run run = {
            .multiplexer = self, .sql = sql, .arguments = arguments, .asker = asker_new(), .until = DEADLINE_NEVER};
        int state = 0;
        VALUE result = rb_protect(run_body, (VALUE)&run, &state);
        result = end_run(&run, result, &state, may_repeat);
        multiplexer_leave(self, run.asker, &state);
        RB_GC_GUARD(run.asker);
        if (state) rb_jump_tag(state);
        if (run.whole) return Qnil;
        if (!run.again) return result;
    }
}

/* @api private protocol.drop_replies -> nil. Reads the answers that nobody waits for any more. */
static VALUE drop_replies(VALUE self)
{
    struct db_protocol *protocol = db_protocol_of(self);
    while (protocol->owed)
        db_operations_known(self)->drop(self);
    protocol->owes_to_nobody = false;
    return Qnil;
}

void Init_heddle_shared_statement(void)
{
    VALUE db = rb_define_module_under(heddle_module, "DB");
    rb_define_method(rb_define_class_under(db, "Protocol", rb_cObject), "drop_replies", drop_replies, 0);
    rb_define_method(rb_define_class_under(db, "Multiplexer", rb_cObject), "run", multiplexer_run, 2);
}
