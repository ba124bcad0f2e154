#include "db/db_talk.h"

#include "db/bindings.h"
#include "deadline.h"
#include "stream/stream.h"

static ID id_check_owner, id_left_early, id_aref;
static ID id_perform_found, id_finish_query, id_finish_kept, id_finish_statement;

// Whether anybody in this process has ever asked to be told of statements.
static bool watched;

// ---- what the rooms know

enum { ROOMS = 4 };
static struct {
    VALUE link_class;
    const struct db_usual *usual;
} rooms[ROOMS];
static int rooms_known;

void db_talk_know(VALUE link_class, const struct db_usual *usual)
{
    if (rooms_known == ROOMS) rb_bug("heddle: more than %d rooms have a database's link", ROOMS);
    rooms[rooms_known].link_class = link_class;
    rooms[rooms_known++].usual = usual;
}

static const struct db_usual *usual_of(VALUE link)
{
    for (int i = 0; i < rooms_known; i++)
        if (rb_obj_class(link) == rooms[i].link_class) return rooms[i].usual;
    return NULL;
}

// ---- the object

struct talk {
    VALUE connection;             // whose private methods are called
    VALUE link;                   // nil without `usual`
    const struct db_usual *usual; // NULL: every statement is the driver's
    VALUE cache;                  // of the statements that stay prepared, if all of them do; else nil
    bool talking;                 // a fiber or thread is in its turn
    bool lasting;                 // the turn lasts beyond its exchange
    bool guarded;                 // the connection must be asked before a turn: check_owner
    unsigned guards;              // how often `guarded` was set
    bool ended;                   // the connection was closed
    int64_t span;                 // nanoseconds that each call of the driver may take
};

static void mark(void *pointer)
{
    const struct talk *talk = pointer;
    rb_gc_mark(talk->connection);
    rb_gc_mark(talk->link);
    rb_gc_mark(talk->cache);
}

static size_t memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct talk);
}

static const rb_data_type_t talk_type = {
    .wrap_struct_name = "Heddle::DB::Talk",
    .function = {.dmark = mark, .dfree = RUBY_DEFAULT_FREE, .dsize = memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static struct talk *talk_of(VALUE self)
{
    return rb_check_typeddata(self, &talk_type);
}

static VALUE allocate(VALUE klass)
{
    struct talk *talk;
    VALUE self = TypedData_Make_Struct(klass, struct talk, &talk_type, talk);
    talk->connection = talk->link = talk->cache = Qnil;
    talk->span = DEADLINE_NEVER;
    return self;
}

// ---- turns

struct turn {
    VALUE self;
    struct talk *talk;
    VALUE (*body)(struct turn *turn);
    VALUE arguments[3]; // the first is what is run: a text or a statement
    deadline_t late;    // when the first call of the driver must have ended
    bool ended;         // as it was at the turn's begin: a close in another thread may come in the middle
    bool complete;      // the body has returned
};

static VALUE run_body(VALUE argument)
{
    struct turn *turn = (struct turn *)argument;
    VALUE value = turn->body(turn);
    turn->complete = true;
    return value;
}

static VALUE tell_connection(VALUE argument)
{
    const struct turn *turn = (const struct turn *)argument;
    VALUE error = rb_errinfo();
    if (!is_exception(error)) error = Qnil;
    bool lost = !NIL_P(error) && stream_is_failure(error);
    bool late = turn->late != DEADLINE_NEVER && turn->late <= deadline_now();
    return rb_funcall(turn->talk->connection, id_left_early, 5, error, lost ? Qtrue : Qfalse,
                      turn->ended ? Qtrue : Qfalse, late ? Qtrue : Qfalse, turn->arguments[0]);
}

static VALUE let_next(VALUE argument)
{
    struct talk *talk = ((struct turn *)argument)->talk;
    talk->talking = talk->lasting;
    return Qnil;
}

// Other callers get Busy until the connection knows whether it stays open; a second exception may strike meanwhile.
static VALUE end_turn(VALUE argument)
{
    if (((struct turn *)argument)->complete) return let_next(argument);
    return rb_ensure(tell_connection, argument, let_next, argument);
}

static VALUE take_turn(struct turn *turn)
{
    turn->late = deadline_in(turn->talk->span);
    turn->ended = turn->talk->ended;
    turn->talk->talking = true;
    VALUE value = rb_ensure(run_body, (VALUE)turn, end_turn, (VALUE)turn);
    RB_GC_GUARD(turn->self);
    return value;
}

static VALUE yield(struct turn *turn)
{
    (void)turn;
    return rb_yield_values(0);
}

// Another thread may have a turn between the connection's answer and ours: then that answer is not worth anything.
static void ask_connection(const struct talk *talk)
{
    unsigned seen;
    do {
        seen = talk->guards;
        if (RTEST(rb_funcall(talk->connection, id_check_owner, 0))) return;
    } while (talk->talking || talk->guards != seen);
}

/*
 * call-seq: talk.exchange(what) { … } -> the block's value
 *
 * Calls the block if the caller may use the connection: else +connection.check_owner+ raises. It returns true if the
 * driver will refuse everything, and is asked again if others were let in meanwhile. If the block does not
 * come to its end, calls +connection.left_early(error, lost, ended, late, what)+: the exception or nil, whether it is
 * an IOError, a SystemCallError or one of TLS, whether the connection had been closed before, whether the timeout has
 * passed, and the text or the statement that is run, or nil.
 */
static VALUE exchange(VALUE self, VALUE what)
{
    struct turn turn = {.self = self, .talk = talk_of(self), .body = yield, .arguments = {what}};
    if (turn.talk->talking || turn.talk->guarded) ask_connection(turn.talk);
    return take_turn(&turn);
}

// ---- usual statements

static bool nothing_to_ask(const struct talk *talk)
{
    return talk->usual && !talk->talking && !talk->guarded && !watched;
}

static bool is_refusal(VALUE result)
{
    return RTEST(rb_obj_is_kind_of(result, rb_eException));
}

static VALUE query_body(struct turn *turn)
{
    const struct talk *talk = turn->talk;
    VALUE result = talk->usual->query(talk->link, turn->arguments[0], turn->arguments[1]);
    if (!is_refusal(result)) return result;
    return rb_funcall(talk->connection, id_finish_query, 2, turn->arguments[0], result);
}

static VALUE query_kept_body(struct turn *turn)
{
    const struct talk *talk = turn->talk;
    VALUE sql = turn->arguments[0], arguments = turn->arguments[1];
    VALUE prepared = rb_funcall(talk->cache, id_aref, 1, sql);
    if (NIL_P(prepared) || !talk->usual->may_run(talk->link, prepared))
        return rb_funcall(talk->connection, id_perform_found, 4, sql, arguments, Qtrue, prepared);
    VALUE result = talk->usual->run(talk->link, prepared, arguments);
    if (!is_refusal(result)) return result;
    return rb_funcall(talk->connection, id_finish_kept, 3, sql, arguments, result);
}

/*
 * call-seq: talk.query(sql, arguments) -> Result or nil
 *
 * Runs a usual statement while nobody listens and no transaction is open: a text of the kind :plain, or any text if all
 * statements stay prepared, for then those of the cache are :plain, and the others go to
 * +connection.perform_found(sql, arguments, true, nil)+. Returns nil otherwise, and has sent nothing then. What a
 * server refuses goes to +connection.finish_query(sql, error)+, or to
 * +connection.finish_kept(sql, arguments, error)+ if the statement was in the cache, within the turn.
 */
static VALUE query(VALUE self, VALUE sql, VALUE arguments)
{
    struct talk *talk = talk_of(self);
    bool kept = !NIL_P(talk->cache);
    if (!nothing_to_ask(talk) || !(kept || talk->usual->may_query) || !RB_TYPE_P(sql, T_STRING)) return Qnil;
    long count = RARRAY_LEN(arguments);
    if (count && RB_TYPE_P(RARRAY_AREF(arguments, count - 1), T_HASH)) return Qnil; // values by their names
    if (!kept && !(talk->usual->may_query(talk->link) && talk->usual->is_plain(talk->link, sql))) return Qnil;
    struct turn turn = {
        .self = self, .talk = talk, .body = kept ? query_kept_body : query_body, .arguments = {sql, arguments}};
    return take_turn(&turn);
}

/*
 * call-seq: talk.plain?(sql) -> true or nil
 *
 * Whether the String is of the kind :plain; nil if only the driver can tell.
 */
static VALUE plain_p(VALUE self, VALUE sql)
{
    struct talk *talk = talk_of(self);
    return talk->usual && talk->usual->is_plain(talk->link, sql) ? Qtrue : Qnil;
}

static VALUE execute_body(struct turn *turn)
{
    const struct talk *talk = turn->talk;
    VALUE result = talk->usual->run(talk->link, turn->arguments[1], turn->arguments[2]);
    if (!is_refusal(result)) return result;
    return rb_funcall(talk->connection, id_finish_statement, 3, turn->arguments[0], turn->arguments[2], result);
}

/*
 * call-seq: talk.execute(statement, prepared, arguments) -> Result or nil
 *
 * Runs a prepared statement of the kind :plain, while nobody listens and no transaction is open. Returns nil otherwise,
 * also for a closed statement (+prepared+ is nil), and has sent nothing then. What a server refuses goes to
 * +connection.finish_statement(statement, arguments, error)+, within the turn.
 */
static VALUE execute(VALUE self, VALUE statement, VALUE prepared, VALUE arguments)
{
    struct talk *talk = talk_of(self);
    if (!nothing_to_ask(talk) || NIL_P(prepared) || !talk->usual->may_run(talk->link, prepared)) return Qnil;
    struct turn turn = {
        .self = self, .talk = talk, .body = execute_body, .arguments = {statement, prepared, arguments}};
    return take_turn(&turn);
}

// ---- methods

/*
 * call-seq: Talk.new(connection, link, cache)
 *
 * +link+ is the driver's object in C, or nil; +cache+ has the statements that stay prepared, if all of them do, or is
 * nil.
 */
static VALUE initialize(VALUE self, VALUE connection, VALUE link, VALUE cache)
{
    struct talk *talk = talk_of(self);
    talk->connection = connection;
    talk->link = link;
    talk->usual = usual_of(link);
    talk->cache = cache;
    return self;
}

/* call-seq: talk.timeout = seconds or nil: how long each call of the driver may take */
static VALUE set_timeout(VALUE self, VALUE seconds)
{
    talk_of(self)->span = deadline_span(seconds);
    return seconds;
}

/* call-seq: talk.going_on? -> true or false: whether a fiber or thread is in its turn */
static VALUE going_on_p(VALUE self)
{
    return talk_of(self)->talking ? Qtrue : Qfalse;
}

/*
 * call-seq: talk.going_on = true or false
 *
 * For a turn of several calls, such as a COPY: true within its first exchange, false before its last one.
 */
static VALUE set_going_on(VALUE self, VALUE going_on)
{
    struct talk *talk = talk_of(self);
    talk->talking = talk->lasting = RTEST(going_on);
    return going_on;
}

/* call-seq: talk.guarded? -> true or false */
static VALUE guarded_p(VALUE self)
{
    return talk_of(self)->guarded ? Qtrue : Qfalse;
}

/* call-seq: talk.guarded = true or false: whether the connection has to be asked before each turn */
static VALUE set_guarded(VALUE self, VALUE guarded)
{
    struct talk *talk = talk_of(self);
    talk->guarded = RTEST(guarded);
    talk->guards++;
    return guarded;
}

/* call-seq: talk.ended? -> true or false */
static VALUE ended_p(VALUE self)
{
    return talk_of(self)->ended ? Qtrue : Qfalse;
}

/* call-seq: talk.ended = true or false: whether the connection was closed */
static VALUE set_ended(VALUE self, VALUE ended)
{
    talk_of(self)->ended = RTEST(ended);
    return ended;
}

/* call-seq: Talk.watched? -> true or false: whether anybody in this process has asked to be told of statements */
static VALUE watched_p(VALUE klass)
{
    (void)klass;
    return watched ? Qtrue : Qfalse;
}

/* call-seq: Talk.watch: from now on somebody is told of statements */
static VALUE watch(VALUE klass)
{
    watched = true;
    return klass;
}

void db_talk_init(VALUE db)
{
    id_check_owner = rb_intern("check_owner");
    id_left_early = rb_intern("left_early");
    id_perform_found = rb_intern("perform_found");
    id_aref = rb_intern("[]");
    id_finish_query = rb_intern("finish_query");
    id_finish_kept = rb_intern("finish_kept");
    id_finish_statement = rb_intern("finish_statement");
    VALUE talk = rb_define_class_under(db, "Talk", rb_cObject);
    rb_gc_register_mark_object(talk);
    rb_define_alloc_func(talk, allocate);
    rb_undef_method(talk, "initialize_copy");
    rb_define_singleton_method(talk, "watched?", watched_p, 0);
    rb_define_singleton_method(talk, "watch", watch, 0);
    rb_define_method(talk, "initialize", initialize, 3);
    rb_define_method(talk, "exchange", exchange, 1);
    rb_define_method(talk, "query", query, 2);
    rb_define_method(talk, "plain?", plain_p, 1);
    rb_define_method(talk, "execute", execute, 3);
    rb_define_method(talk, "timeout=", set_timeout, 1);
    rb_define_method(talk, "going_on?", going_on_p, 0);
    rb_define_method(talk, "going_on=", set_going_on, 1);
    rb_define_method(talk, "guarded?", guarded_p, 0);
    rb_define_method(talk, "guarded=", set_guarded, 1);
    rb_define_method(talk, "ended?", ended_p, 0);
    rb_define_method(talk, "ended=", set_ended, 1);
}
