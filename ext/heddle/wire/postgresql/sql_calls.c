#include "wire/postgresql/sql_calls.h"

#include <string.h>

// Words of SQL and types that stand in front of a parenthesis, and common functions of the server's own, none of which
// leaves anything in the session.
static const char harmless[] =
    " "
    "abs acos age all and any array array_agg array_append array_cat array_fill array_length array_lower "
    "array_position array_positions array_prepend array_remove array_replace array_to_json array_to_string "
    "array_upper as ascii asin atan avg between bigint bit bit_and bit_length bit_or bool_and bool_or bpchar "
    "btrim by cardinality case cast cbrt ceil ceiling char char_length character character_length check chr "
    "clock_timestamp coalesce col_description concat concat_ws conflict convert convert_from convert_to copy "
    "corr cos count covar_pop cube cume_dist current_database current_schema current_schemas current_setting "
    "currval date date_bin date_part date_trunc decimal decode degrees dense_rank distinct div do else encode "
    "escape every except exclude exists exp extract fetch filter first_value float float4 float8 floor for "
    "format format_type from gen_random_uuid generate_series generate_subscripts get_bit get_byte greatest group "
    "grouping has_table_privilege having host ilike in inet initcap int int4 int8 integer intersect interval "
    "into is isempty isfinite join json_agg json_array_elements json_array_elements_text json_array_length "
    "json_build_array json_build_object json_each json_each_text json_extract_path json_extract_path_text "
    "json_object json_object_agg json_object_keys json_populate_record json_to_recordset json_typeof jsonb_agg "
    "jsonb_array_elements jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object "
    "jsonb_each jsonb_each_text jsonb_extract_path jsonb_extract_path_text jsonb_insert jsonb_object "
    "jsonb_object_agg jsonb_object_keys jsonb_path_exists jsonb_path_query jsonb_path_query_array "
    "jsonb_path_query_first jsonb_pretty jsonb_set jsonb_strip_nulls jsonb_to_recordset jsonb_typeof "
    "justify_days justify_hours lag last_value lastval lateral lead least left length like limit ln localtime "
    "localtimestamp log lower lpad ltrim make_date make_interval make_time make_timestamp make_timestamptz "
    "materialized max md5 min mod mode multirange nextval not now nth_value ntile nullif num_nonnulls num_nulls "
    "numeric obj_description octet_length of offset on only or order over overlay percent_rank percentile_cont "
    "percentile_disc pg_backend_pid pg_cancel_backend pg_get_constraintdef pg_get_expr pg_get_indexdef "
    "pg_get_serial_sequence pg_notify pg_sleep pg_terminate_backend pg_typeof pi plainto_tsquery position power "
    "precision quote_ident quote_literal quote_nullable radians random range_agg rank recursive regexp_count "
    "regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table repeat "
    "replace returning reverse right rollup round row row_number row_to_json rpad rtrim select set sets setval "
    "sha224 sha256 sha384 sha512 sign sin smallint some split_part sqrt starts_with statement_timestamp stddev "
    "stddev_pop stddev_samp string_agg string_to_array string_to_table strpos substr substring sum symmetric "
    "table tablesample tan text then time timeofday timestamp timezone to to_char to_date to_json to_jsonb "
    "to_number to_regclass to_timestamp to_tsquery to_tsvector transaction_timestamp translate trim trim_array "
    "trunc ts_headline ts_rank ts_rank_cd under union unique unistr unnest upper using values var_pop var_samp "
    "varbit varchar variance varying version websearch_to_tsquery when where width_bucket window with within "
    "xmlagg xmlelement xmlforest ";

bool pg_sql_is_harmless(struct pg_span word)
{
    enum { LONGEST = 32 };
    char sought[LONGEST + 3] = " ";
    if (word.length > LONGEST) return false;
    for (size_t i = 0; i < word.length; i++) {
        uint8_t byte = word.at[i];
        sought[i + 1] = (char)(byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte);
    }
    sought[word.length + 1] = ' ';
    return strstr(harmless, sought) != NULL;
}

static bool is_dot(const struct pg_sql_scan *scan)
{
    return scan->token == PG_SQL_OTHER && scan->text.length == 1 && *scan->text.at == '.';
}

static bool pg_is_word(const struct pg_sql_scan *scan, const char *word)
{
    if (scan->token != PG_SQL_WORD || scan->text.length != strlen(word)) return false;
    for (size_t i = 0; i < scan->text.length; i++)
        if ((scan->text.at[i] | 0x20) != (uint8_t)word[i]) return false;
    return true;
}

// Whether columns stand in parentheses behind the name that follows this word.
static bool names_columns(const struct pg_sql_scan *scan)
{
    static const char *const words[] = {"into", "as", "with", "recursive", "copy"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (pg_is_word(scan, words[i])) return true;
    return false;
}

bool pg_sql_note_call(struct pg_sql_calls *calls, const struct pg_sql_scan *scan)
{
    bool called = false;
    switch (scan->token) {
    case PG_SQL_OPEN:
        called =
            calls->named && !calls->columns && (calls->qualified || calls->quoted || !pg_sql_is_harmless(calls->name));
        calls->named = calls->columns = calls->qualified = false;
        break;
    case PG_SQL_WORD:
    case PG_SQL_QUOTED:
        if (!calls->dotted) {
            calls->qualified = false;
            // insert into name (…), … as name (…)
            calls->columns = calls->lists || (calls->columns && scan->token == PG_SQL_WORD && pg_is_word(scan, "as"));
        } else {
            calls->qualified = true;
        }
        calls->named = true;
        calls->quoted = scan->token == PG_SQL_QUOTED;
        calls->name = scan->text;
        break;
    default:
        if (!is_dot(scan)) calls->columns = calls->named = calls->qualified = false;
    }
    calls->dotted = is_dot(scan);
    calls->lists = scan->token == PG_SQL_WORD && names_columns(scan);
    return called;
}
