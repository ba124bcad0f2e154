#include "memcached/multi.h"

// The parts of a command, as made by lib/heddle/memcached/pipeline.rb.
enum { PART_VERB, PART_VALUE, PART_FLAGS, PART_TTL, PART_CAS, PART_MODE, PART_DELTA, PART_INITIAL, PART_STALE };

void multi_read_command(const struct multi *multi, long index, struct memcached_request *request, VALUE *value)
{
    VALUE command = rb_ary_entry(multi->values, index);
    Check_Type(command, T_ARRAY);
    int verb = NUM2INT(rb_ary_entry(command, PART_VERB));
    if (verb < MEMCACHED_GET || verb > MEMCACHED_ARITHMETIC) rb_raise(rb_eArgError, "no such command: %d", verb);
    request->verb = (enum memcached_verb)verb;
    if (verb == MEMCACHED_GET) request->fields |= MEMCACHED_WANT_VALUE | MEMCACHED_WANT_FLAGS | MEMCACHED_WANT_CAS;
    if (verb == MEMCACHED_SET) {
        *value = rb_ary_entry(command, PART_VALUE);
        Check_Type(*value, T_STRING);
        request->flags = NUM2UINT(rb_ary_entry(command, PART_FLAGS));
        request->fields |= MEMCACHED_SEND_FLAGS | MEMCACHED_WANT_CAS;
    }
    VALUE part = rb_ary_entry(command, PART_TTL);
    if (!NIL_P(part)) {
        request->ttl = request->vivify = NUM2INT(part);
        request->fields |= MEMCACHED_SEND_TTL;
    }
    part = rb_ary_entry(command, PART_CAS);
    if (!NIL_P(part)) {
        request->cas = NUM2ULL(part);
        request->fields |= MEMCACHED_SEND_CAS;
    }
    part = rb_ary_entry(command, PART_MODE);
    if (!NIL_P(part)) {
        StringValue(part);
        request->mode = RSTRING_LEN(part) ? RSTRING_PTR(part)[0] : 'S';
        request->fields |= MEMCACHED_SEND_MODE;
    }
    if (verb == MEMCACHED_ARITHMETIC) {
        request->fields &= ~(unsigned)MEMCACHED_SEND_TTL;
        request->fields |= MEMCACHED_WANT_VALUE | MEMCACHED_SEND_DELTA;
        request->delta = NUM2ULL(rb_ary_entry(command, PART_DELTA));
        part = rb_ary_entry(command, PART_INITIAL);
        if (!NIL_P(part)) {
            request->initial = NUM2ULL(part);
            request->fields |= MEMCACHED_SEND_INITIAL | MEMCACHED_SEND_VIVIFY;
        }
    }
    if (RTEST(rb_ary_entry(command, PART_STALE))) request->fields |= MEMCACHED_INVALIDATE;
}
