// One exchange of a connection, and what is given back and watched behind it.
#include "db/mysql/protocol.h"

enum { KEPT_CAPACITY = 64 << 10 };

// Buffers that were large once are freed.
static void shrink(struct mysql_bytes *bytes)
{
    if (bytes->capacity <= KEPT_CAPACITY) return;
    xfree(bytes->at);
    *bytes = (struct mysql_bytes){0};
}

static void mysql_exchange_ended(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    protocol->separate = Qnil;
    if (!exchange->complete && exchange->unsent) mysql_flush_when_idle(exchange->self);
    shrink(&protocol->request);
    shrink(&protocol->row);
}

VALUE mysql_exchange(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = mysql_protocol_of(exchange->self);
    db_exchange_begin(exchange, &protocol->base);
    protocol->exchanges++;
    protocol->refused = Qnil;
    VALUE result = db_exchange_run(exchange, mysql_exchange_ended);
    mysql_flush_when_idle(exchange->self);
    RB_GC_GUARD(exchange->self);
    return result;
}

VALUE mysql_exchange_with(VALUE self, VALUE (*body)(struct db_exchange *), VALUE first, VALUE second)
{
    struct db_exchange exchange = {.self = self, .body = body, .arguments = {first, second}};
    return mysql_exchange(&exchange);
}
