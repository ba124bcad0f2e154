// One exchange of a connection: what is set before it, and what is given back and looked up behind it.
#include "db/postgresql/protocol.h"

enum { KEPT_CAPACITY = 64 << 10 };

// Memory that a large value needed once is given back.
static void shrink(struct pg_buffer *buffer)
{
    buffer->length = 0;
    if (buffer->capacity <= KEPT_CAPACITY) return;
    xfree(buffer->at);
    buffer->at = NULL;
    buffer->capacity = 0;
}

static void postgresql_exchange_ended(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    protocol->apart = Qnil;
    if (exchange->complete) protocol->preparing = Qnil;
    shrink(&protocol->request);
    shrink(&protocol->row);
}

VALUE postgresql_exchange(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(exchange->self);
    db_exchange_begin(exchange, &protocol->base);
    if (!postgresql_in_copy(protocol)) postgresql_become(protocol, POSTGRESQL_EXTENDED);
    protocol->request.length = 0;
    protocol->timeout.put = false;
    if (!exchange->resumes) protocol->preparing = Qnil;
    VALUE result = db_exchange_run(exchange, postgresql_exchange_ended);
    // Of a shared connection, whoever uses it alone does: see multiplexed.c.
    if (!protocol->base.shared) postgresql_settle(exchange->self, exchange->bounded ? exchange->until : DEADLINE_NEVER);
    RB_GC_GUARD(result);
    RB_GC_GUARD(exchange->self);
    return result;
}

VALUE postgresql_exchange_with(VALUE self, VALUE (*body)(struct db_exchange *), VALUE first, VALUE second)
{
    struct db_exchange exchange = {.self = self, .body = body, .arguments = {first, second}};
    return postgresql_exchange(&exchange);
}
