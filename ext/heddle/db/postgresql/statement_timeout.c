// The time that the caller still has, sent in front of a statement as the server's statement_timeout, in the same
// transaction and before the same Sync: no packet more. set_config makes it the transaction's own, so nothing of it is
// left behind a statement outside of a transaction block, whoever gets the session next: another user of the pool,
// another task's statement on a shared connection, another client behind a pooler.
#include "db/postgresql/protocol.h"

#include "scope/deadline_scope.h"

#include <stdio.h>
#include <string.h>

static const char setter[] = "select pg_catalog.set_config('statement_timeout', $1, true)";

// What the caller can wait for: until the deadline in force, or the connection's own timeout. DEADLINE_NEVER also for
// more than the server takes.
static deadline_t time_limit(const struct postgresql_protocol *protocol, deadline_t now)
{
    deadline_t until = deadline_in_force();
    if (protocol->base.span != DEADLINE_NEVER) {
        deadline_t own = deadline_after(now, protocol->base.span);
        if (own < until) until = own;
    }
    return until - now > (int64_t)INT32_MAX * 1000000 ? DEADLINE_NEVER : until;
}

// In a transaction block, the setter of the next statement runs under the time of this one: milliseconds for it.
enum { LEAST_IN_BLOCK = 10 };

// Milliseconds, rounded up: the server never stops a statement before its caller's time is over. 0 is no limit.
static int64_t milliseconds(const struct postgresql_protocol *protocol, deadline_t until, deadline_t now)
{
    int64_t own = protocol->timeout.own;
    if (until == DEADLINE_NEVER) return own;
    int64_t left = until > now ? (until - now + 999999) / 1000000 : 1;
    if (protocol->transaction != PG_IDLE && left < LEAST_IN_BLOCK) left = LEAST_IN_BLOCK;
    return own && own < left ? own : left;
}

// 0: the statement is parsed with each request.
static uint32_t setter_id(const struct postgresql_protocol *protocol)
{
    if (NIL_P(protocol->timeout.setter)) return 0;
    const struct postgresql_statement *statement = postgresql_statement_of(protocol->timeout.setter);
    return statement->open && statement->pending_closes == protocol->base.pending_closes ? statement->id : 0;
}

static void put_setter(struct postgresql_protocol *protocol, int64_t value)
{
    static const struct pg_span unnamed = {(const uint8_t *)"", 0};
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%lld", (long long)value);
    struct postgresql_name memory;
    uint32_t id = setter_id(protocol);
    struct pg_span name = postgresql_name_of(protocol, id, &memory);
    if (!id) {
        const struct pg_span sql = {(const uint8_t *)setter, strlen(setter)};
        postgresql_check(pg_put_parse(&protocol->request, unnamed, sql, NULL, 0));
    }
    struct pg_bind bind;
    pg_bind_begin(&bind, &protocol->request, unnamed, name, NULL, 0, 1);
    pg_bind_value(&bind, (struct pg_span){(const uint8_t *)digits, (size_t)length});
    postgresql_check(pg_bind_end(&bind, NULL, 0));
    postgresql_check(pg_put_execute(&protocol->request, unnamed, 0));
}

bool postgresql_put_statement_timeout(struct postgresql_protocol *protocol, bool takes)
{
    struct postgresql_statement_timeout *timeout = &protocol->timeout;
    timeout->put = false;
    if (!timeout->enabled) return false;
    bool block = protocol->transaction != PG_IDLE;
    if (!block && !protocol->base.owed) timeout->left = false;
    // The end of a failed transaction has already taken its statement_timeout away.
    if (protocol->transaction == PG_FAILED || !(takes || (block && timeout->left))) return false;
    deadline_t now = deadline_now(), until = time_limit(protocol, now);
    if (until == DEADLINE_NEVER && !timeout->left) return false;
    put_setter(protocol, milliseconds(protocol, until, now));
    // A reply that is owed may be that to a BEGIN.
    if (block || (protocol->base.owed && !protocol->base.shared)) timeout->left = true;
    timeout->until = until;
    return timeout->put = true;
}

VALUE postgresql_ask_text(struct db_exchange *exchange, struct pg_span sql)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    // Without a Sync the server would pass over the Query, too, if it refuses the setter.
    bool put = postgresql_put_statement_timeout(protocol, false);
    if (put) postgresql_check(pg_put_sync(&protocol->request));
    postgresql_check(pg_put_query(&protocol->request, sql));
    exchange->unsent = false;
    db_protocol_check_answered(&protocol->base);
    protocol->timeout.until = DEADLINE_NEVER; // a text may be a COMMIT, which no timeout stops
    postgresql_send(protocol, put ? 2 : 1);
    VALUE result = put ? postgresql_read_result(protocol, NULL, Qnil, Qnil) : Qnil;
    if (protocol->base.owed > 1) return result; // an error that ended the session
    postgresql_become(protocol, POSTGRESQL_SIMPLE);
    return Qnil;
}

/*
 * @api private protocol.enable_statement_timeout(milliseconds, setter)
 *
 * From now on the server gets the caller's time with each statement that reads or changes rows. +milliseconds+: the
 * statement_timeout that the session has without it; 0 for none. +setter+: STATEMENT_TIMEOUT as a Prepared; nil where
 * it cannot stay prepared.
 */
static VALUE enable_statement_timeout(VALUE self, VALUE own, VALUE prepared)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    if (!NIL_P(prepared)) postgresql_statement_of(prepared);
    protocol->timeout.own = NUM2INT(own);
    protocol->timeout.setter = prepared;
    protocol->timeout.enabled = true;
    return self;
}

/*
 * call-seq: protocol.statement_timed_out? -> true or false
 *
 * Returns whether the server stops the statement whose reply is the next one by itself, because the time that was sent
 * with it is over.
 */
static VALUE statement_timed_out_p(VALUE self)
{
    return postgresql_timed_out(postgresql_protocol_of(self)) ? Qtrue : Qfalse;
}

void postgresql_statement_timeout_define(void)
{
    rb_define_const(postgresql_cProtocol, "STATEMENT_TIMEOUT", rb_str_freeze(rb_utf8_str_new_cstr(setter)));
    rb_define_method(postgresql_cProtocol, "enable_statement_timeout", enable_statement_timeout, 2);
    rb_define_method(postgresql_cProtocol, "statement_timed_out?", statement_timed_out_p, 0);
}
