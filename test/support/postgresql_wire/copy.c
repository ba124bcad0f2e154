// Values of COPY, in its forms of text.
#include "answers.h"

#include "wire/postgresql/copy.h"

static const struct pg_copy_text other_text = {'|', {(const uint8_t *)"null", 4}};
static const struct pg_copy_csv other_csv = {';', '\'', '\\', {(const uint8_t *)"null", 4}};

static void say_field(struct pg_span value)
{
    if (!value.at)
        printf("NULL ");
    else
        say_hex(value.at, value.length), printf("- ");
}

// The values of all records, "=" behind each record.
void copy_out(bool csv, bool other, struct pg_span data)
{
    const struct pg_copy_text *text = other ? &other_text : &pg_copy_text_default;
    const struct pg_copy_csv *form = other ? &other_csv : &pg_copy_csv_default;
    const uint8_t *p = data.at, *end = p + data.length;
    struct pg_copy_scan scan = {0};
    struct pg_span record;
    bool end_of_data;
    while ((csv ? pg_copy_csv_record(form, p, end, true, &scan, &record, &p, &end_of_data)
                : pg_copy_text_line(p, end, true, &scan, &record, &p, &end_of_data)) == PG_DONE) {
        struct pg_copy_fields fields;
        struct pg_copy_field field;
        pg_copy_fields_begin(&fields, record);
        while (csv ? pg_copy_csv_next(form, &fields, &field) : pg_copy_text_next(text, &fields, &field)) {
            struct pg_span value = field.raw;
            uint8_t *out = malloc(value.length + 1);
            if (value.at)
                value =
                    (struct pg_span){out, csv ? pg_copy_csv_decode(form, value, out) : pg_copy_text_decode(value, out)};
            say_field(value);
            free(out);
        }
        printf("= ");
    }
}

// One value in each form, as it is sent.
void copy_in(bool csv, bool other, struct pg_span value)
{
    buffer.length = 0;
    enum pg_written written = csv ? pg_put_copy_csv(&buffer, other ? &other_csv : &pg_copy_csv_default, value, false)
                                  : pg_put_copy_text(&buffer, other ? &other_text : &pg_copy_text_default, value);
    say_written(written);
}
