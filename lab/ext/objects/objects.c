// The cost of only making rows of an int, a varchar and a datetime: the same objects as a client's, made by the same
// Ruby functions, without a server, a protocol or a client. This is the floor of `heddle bench db`; see
// lib/heddle/lab/objects.rb.
#include <ruby.h>
#include <ruby/encoding.h>

#include <limits.h>
#include <string.h>
#include <time.h>

enum { GATHERED = 64 };

// Writes "name of row N" to `to`, and returns its length.
static long name_of(long number, char *to)
{
    memcpy(to, "name of row ", 12);
    char digits[20];
    long count = 0;
    for (; number > 0; number /= 10)
        digits[count++] = (char)('0' + number % 10);
    for (long i = 0; i < count; i++)
        to[12 + i] = digits[count - 1 - i];
    return 12 + count;
}

static VALUE row(long number, int encoding)
{
    char name[40];
    VALUE text = rb_str_new(name, name_of(number, name));
    RB_ENCODING_SET_INLINED(text, encoding);
    struct timespec moment = {.tv_sec = 1700000000 + number};
    VALUE values[] = {LONG2FIX(number), text, rb_time_timespec_new(&moment, INT_MAX - 1)};
    return rb_ary_new_from_values(3, values);
}

/* call-seq: Heddle::Lab::Objects.rows(count) -> Array of Array */
static VALUE rows(VALUE self, VALUE count)
{
    (void)self;
    int encoding = rb_utf8_encindex();
    long most = NUM2LONG(count), gathered = 0;
    VALUE all = rb_ary_new(), some[GATHERED]; // on the stack, where the GC finds them
    for (long number = 1; number <= most; number++) {
        some[gathered++] = row(number, encoding);
        if (gathered < GATHERED && number < most) continue;
        rb_ary_cat(all, some, gathered);
        gathered = 0;
    }
    return all;
}

void Init_objects(void)
{
    VALUE objects = rb_path2class("Heddle::Lab::Objects");
    rb_define_singleton_method(objects, "rows", rows, 1);
}
