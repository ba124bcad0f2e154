// Statements that share one Sync. The server runs them as one transaction: after an error it skips the others, and
// undoes those before.
#include "db/postgresql/commands.h"

struct step {
    struct postgresql_protocol *protocol;
    VALUE request;
    long number; // from 1
};

static VALUE put_step(VALUE argument)
{
    const struct step *step = (const struct step *)argument;
    postgresql_put_new(step->protocol, rb_ary_entry(step->request, 0), rb_ary_entry(step->request, 1), Qnil, 0);
    return Qnil;
}

// The error of a value is raised at the end of the pipeline's block, where its backtrace does not show the statement.
static VALUE name_step(VALUE argument, VALUE error)
{
    const struct step *step = (const struct step *)argument;
    VALUE said = rb_funcall(error, rb_intern("message"), 0);
    VALUE message = rb_sprintf("%" PRIsVALUE " (statement %ld of the pipeline; nothing was sent)", said, step->number);
    rb_exc_raise(rb_funcall(error, rb_intern("exception"), 1, message));
}

static bool all_take_timeout(struct postgresql_protocol *protocol, VALUE requests)
{
    if (!protocol->timeout.enabled) return false;
    for (long i = 0; i < RARRAY_LEN(requests); i++) {
        VALUE request = rb_ary_entry(requests, i);
        Check_Type(request, T_ARRAY);
        if (!postgresql_takes_statement_timeout(protocol, rb_ary_entry(request, 0))) return false;
    }
    return true;
}

static VALUE run_atomic_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    VALUE requests = exchange->arguments[0];
    exchange->unsent = true;
    postgresql_put_statement_timeout(protocol, all_take_timeout(protocol, requests));
    for (long i = 0; i < RARRAY_LEN(requests); i++) {
        VALUE request = rb_ary_entry(requests, i);
        Check_Type(request, T_ARRAY);
        struct step step = {protocol, request, i + 1};
        rb_rescue2(put_step, (VALUE)&step, name_step, (VALUE)&step, rb_eArgError, rb_eTypeError, rb_eEncodingError,
                   (VALUE)0);
        RB_GC_GUARD(request);
    }
    postgresql_check(pg_put_sync(&protocol->request));
    exchange->unsent = false;
    postgresql_ask(protocol);
    VALUE error;
    VALUE results = postgresql_read_results(protocol, (size_t)RARRAY_LEN(requests), &error);
    return rb_assoc_new(results, error);
}

/* @api private protocol.run_atomic(requests) -> [Array of Result, ServerError or nil]. Requests are [sql, arguments].
 * After an error the results are those of the statements before it, which it has undone. */
static VALUE run_atomic(VALUE self, VALUE requests)
{
    Check_Type(requests, T_ARRAY);
    return postgresql_exchange_with(self, run_atomic_body, requests, Qnil);
}

void postgresql_pipeline_define(void)
{
    rb_define_method(postgresql_cProtocol, "run_atomic", run_atomic, 1);
}
