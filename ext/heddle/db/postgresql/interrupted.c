// Reads the rest of a reply whose caller was interrupted (stream_set_resumable), so that the connection can be used
// again.
#include "db/postgresql/protocol.h"

// The statement that the interrupted caller prepared: nobody has read its description. Whoever has kept it prepares it
// again.
static void forget_prepared(struct postgresql_protocol *protocol)
{
    if (NIL_P(protocol->preparing)) return;
    struct postgresql_statement *statement = postgresql_statement_of(protocol->preparing);
    statement->open = false;
    protocol->preparing = Qnil;
    // Also if the Parse has failed: the server says no word then.
    pending_closes_add(protocol->base.pending_closes, statement->id);
}

// Drops all that the interrupted caller had asked for, also its statement if the server has prepared one.
VALUE postgresql_drop_reply(struct postgresql_protocol *protocol)
{
    protocol->unknown_types = protocol->waiting = protocol->wanted_texts = Qnil;
    VALUE error = Qnil;
    for (;;) {
        struct pg_message message = postgresql_message(protocol);
        switch (message.type) {
        case PG_READY_FOR_QUERY:
            if (!pg_ready_for_query(message.p, message.end, &protocol->transaction))
                db_protocol_violated(&protocol->base, "sent a malformed state of the transaction");
            postgresql_replied(protocol);
            forget_prepared(protocol);
            return error;
        case PG_ERROR_RESPONSE:
            if (NIL_P(error)) error = postgresql_error_value(message);
            break;
        case PG_COPY_IN_RESPONSE: db_protocol_violated(&protocol->base, "began a COPY for an interrupted caller");
        default: break;
        }
    }
}

static VALUE interrupted_finish_body(struct db_exchange *exchange)
{
    return postgresql_drop_reply(exchange->protocol);
}

/* @api private protocol.finish_reply -> ServerError or nil. Reads the rest of an interrupted reply; returns its error.
 * */
static VALUE finish_reply(VALUE self)
{
    struct db_exchange exchange = {.self = self, .body = interrupted_finish_body, .resumes = true};
    return postgresql_exchange(&exchange);
}

void postgresql_interrupted_define(void)
{
    rb_define_method(postgresql_cProtocol, "finish_reply", finish_reply, 0);
}
