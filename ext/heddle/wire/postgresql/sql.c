#include "wire/postgresql/sql.h"

#include "wire/postgresql/sql_calls.h"

static inline bool is(const struct pg_sql_scan *scan, const char *keyword)
{
    // Every word of a statement is compared with some twenty keywords: most differ in the first letter.
    if (scan->token != PG_SQL_WORD || (scan->text.at[0] | 0x20) != (uint8_t)keyword[0]) return false;
    if (strlen(keyword) != scan->text.length) return false;
    for (size_t i = 0; i < scan->text.length; i++) {
        uint8_t byte = scan->text.at[i];
        if (byte >= 'A' && byte <= 'Z') byte |= 0x20;
        if (byte != (uint8_t)keyword[i]) return false;
    }
    return true;
}

static const struct {
    const char *keyword;
    enum pg_sql_kind kind;
} kinds[] = {{"select", PG_SQL_SELECT},
             {"values", PG_SQL_SELECT},
             {"table", PG_SQL_SELECT},
             {"insert", PG_SQL_INSERT},
             {"update", PG_SQL_UPDATE},
             {"delete", PG_SQL_DELETE},
             {"merge", PG_SQL_MERGE},
             {"begin", PG_SQL_BEGIN},
             {"commit", PG_SQL_COMMIT},
             {"end", PG_SQL_COMMIT},
             {"rollback", PG_SQL_ROLLBACK},
             {"abort", PG_SQL_ROLLBACK},
             {"savepoint", PG_SQL_SAVEPOINT},
             {"release", PG_SQL_RELEASE},
             {"set", PG_SQL_SET},
             {"reset", PG_SQL_RESET},
             {"discard", PG_SQL_DISCARD},
             {"prepare", PG_SQL_PREPARE},
             {"execute", PG_SQL_EXECUTE},
             {"declare", PG_SQL_DECLARE},
             {"deallocate", PG_SQL_DEALLOCATE},
             {"fetch", PG_SQL_FETCH},
             {"move", PG_SQL_MOVE},
             {"close", PG_SQL_CLOSE_CURSOR},
             {"listen", PG_SQL_LISTEN},
             {"unlisten", PG_SQL_UNLISTEN},
             {"notify", PG_SQL_NOTIFY},
             {"lock", PG_SQL_LOCK},
             {"explain", PG_SQL_EXPLAIN},
             {"show", PG_SQL_SHOW},
             {"call", PG_SQL_CALL},
             {"do", PG_SQL_DO},
             {"copy", PG_SQL_COPY},
             {"create", PG_SQL_DEFINITION},
             {"alter", PG_SQL_DEFINITION},
             {"drop", PG_SQL_DEFINITION},
             {"truncate", PG_SQL_DEFINITION},
             {"grant", PG_SQL_DEFINITION},
             {"revoke", PG_SQL_DEFINITION},
             {"comment", PG_SQL_DEFINITION},
             {"security", PG_SQL_DEFINITION},
             {"refresh", PG_SQL_DEFINITION},
             {"import", PG_SQL_DEFINITION},
             {"reassign", PG_SQL_DEFINITION},
             {"reindex", PG_SQL_DEFINITION},
             {"start", PG_SQL_BEGIN},
             {"with", PG_SQL_ANYTHING}};

static enum pg_sql_kind kind_of_word(const struct pg_sql_scan *scan)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is(scan, kinds[i].keyword)) return kinds[i].kind;
    return PG_SQL_ANYTHING;
}

// Moves to the next token outside of parentheses; false at the statement's end.
static bool next_outside(struct pg_sql_scan *scan)
{
    size_t depth = 0;
    for (;;) {
        switch (pg_sql_next(scan)) {
        case PG_SQL_END:
        case PG_SQL_UNTERMINATED:
        case PG_SQL_SEMICOLON: return false;
        case PG_SQL_OPEN: depth++; break;
        case PG_SQL_CLOSE:
            if (depth == 0) return false; // of (with … select …)
            depth--;
            break;
        default:
            if (depth == 0) return true;
        }
    }
}

// The kind of the main statement after WITH's queries, whose names may be any word.
static enum pg_sql_kind kind_of_with(struct pg_sql_scan *scan)
{
    bool name = true;
    while (next_outside(scan)) {
        if (name && is(scan, "recursive")) continue;
        if (!name) {
            enum pg_sql_kind kind = kind_of_word(scan);
            if (kind <= PG_SQL_MERGE) return kind;
        }
        name = scan->token == PG_SQL_COMMA;
    }
    return PG_SQL_ANYTHING;
}

static enum pg_sql_kind kind_of_copy(struct pg_sql_scan *scan)
{
    while (next_outside(scan)) {
        bool in = is(scan, "from");
        if (!in && !is(scan, "to")) continue;
        pg_sql_next(scan);
        if (in && is(scan, "stdin")) return PG_SQL_COPY_IN;
        if (!in && is(scan, "stdout")) return PG_SQL_COPY_OUT;
        break;
    }
    return PG_SQL_COPY;
}

// The kind of a statement whose first token has just been read; `scan` is a copy.
static enum pg_sql_kind pg_kind_of(struct pg_sql_scan scan)
{
    scan.places = NULL;
    while (scan.token == PG_SQL_OPEN)
        pg_sql_next(&scan);
    enum pg_sql_kind kind = kind_of_word(&scan);
    if (is(&scan, "with")) return kind_of_with(&scan);
    if (kind == PG_SQL_COPY) return kind_of_copy(&scan);
    bool start = is(&scan, "start");
    if (kind != PG_SQL_COMMIT && kind != PG_SQL_ROLLBACK && kind != PG_SQL_SET && kind != PG_SQL_PREPARE && !start)
        return kind;
    pg_sql_next(&scan);
    if (start) return is(&scan, "transaction") ? PG_SQL_BEGIN : PG_SQL_ANYTHING;
    switch (kind) {
    case PG_SQL_COMMIT: return is(&scan, "prepared") ? PG_SQL_COMMIT_PREPARED : kind;
    case PG_SQL_ROLLBACK:
        if (is(&scan, "prepared")) return PG_SQL_ROLLBACK_PREPARED;
        if (is(&scan, "work") || is(&scan, "transaction")) pg_sql_next(&scan);
        return is(&scan, "to") ? PG_SQL_ROLLBACK_TO : kind;
    case PG_SQL_PREPARE: return is(&scan, "transaction") ? PG_SQL_PREPARE_TRANSACTION : kind;
    default:
        return is(&scan, "local") || is(&scan, "transaction") || is(&scan, "constraints") ? PG_SQL_SET_LOCAL : kind;
    }
}

// Tells whether a semicolon ends the statement: not in parentheses (a rule's actions), nor in a function's body
// (BEGIN ATOMIC … END). psql recognizes these by the same words.
struct nesting {
    size_t parentheses, blocks;
    uint32_t words; // of the statement, as far as they matter
    bool create, routine;
};

static void nest(struct nesting *nesting, const struct pg_sql_scan *scan)
{
    if (scan->token == PG_SQL_OPEN) nesting->parentheses++;
    if (scan->token == PG_SQL_CLOSE && nesting->parentheses > 0) nesting->parentheses--;
    if (scan->token != PG_SQL_WORD) return;
    if (nesting->words < 4) { // create or replace function
        nesting->words++;
        if (nesting->words == 1) nesting->create = is(scan, "create");
        if (is(scan, "function") || is(scan, "procedure")) nesting->routine = nesting->create;
    }
    if (!nesting->routine || nesting->parentheses > 0) return;
    if (is(scan, "begin") || (nesting->blocks > 0 && is(scan, "case"))) nesting->blocks++;
    if (nesting->blocks > 0 && is(scan, "end")) nesting->blocks--;
}

// What a statement that returns rows does to the session.
struct effects {
    size_t parentheses, config; // open ones; those of the set_config whose arguments are being read, 0 for none
    bool called;                // the last token is set_config
    bool inserts, truth;        // … INSERT or MERGE; … true
    bool into, session;
    bool calls; // functions that are not known
    struct pg_sql_calls seen;
};

static void note_effects(struct effects *effects, const struct pg_sql_scan *scan)
{
    if (pg_sql_note_call(&effects->seen, scan) && !effects->called) effects->calls = true;
    if (scan->token == PG_SQL_OPEN) {
        effects->parentheses++;
        if (effects->called) {
            if (effects->config) effects->session = true; // one in another's arguments
            effects->config = effects->parentheses;
        }
    } else if (scan->token == PG_SQL_CLOSE && effects->parentheses > 0) {
        if (effects->config == effects->parentheses) {
            effects->session = effects->session || !effects->truth;
            effects->config = 0;
        }
        effects->parentheses--;
    } else if (scan->token == PG_SQL_WORD) {
        effects->into = effects->into || (is(scan, "into") && !effects->inserts);
    }
    effects->called = is(scan, "set_config");
    effects->inserts = is(scan, "insert") || is(scan, "merge");
    effects->truth = is(scan, "true");
}

bool pg_sql_next_statement(struct pg_sql_scan *scan, struct pg_sql_statement *statement)
{
    while (pg_sql_next(scan) == PG_SQL_SEMICOLON)
        ;
    if (scan->token == PG_SQL_END) return false;
    const uint8_t *begin = scan->text.at, *last = begin + scan->text.length;
    statement->kind = pg_kind_of(*scan);
    struct nesting nesting = {0};
    struct effects effects = {0};
    nest(&nesting, scan);
    note_effects(&effects, scan);
    while (pg_sql_next(scan) != PG_SQL_END) {
        nest(&nesting, scan);
        note_effects(&effects, scan);
        if (scan->token == PG_SQL_SEMICOLON && nesting.parentheses == 0 && nesting.blocks == 0) break;
        last = scan->text.at + scan->text.length;
    }
    if (statement->kind == PG_SQL_SELECT && effects.into) statement->kind = PG_SQL_DEFINITION;
    statement->session = effects.session;
    statement->calls = effects.calls && statement->kind != PG_SQL_DEFINITION;
    statement->text = (struct pg_span){begin, (size_t)(last - begin)};
    return true;
}

void pg_sql_analyse(const uint8_t *p, const uint8_t *end, bool backslashes, struct pg_sql *sql)
{
    struct pg_sql_scan scan;
    struct pg_sql_statement statement;
    struct pg_sql_places places = {.text = p};
    *sql = (struct pg_sql){.kind = PG_SQL_ANYTHING};
    pg_sql_begin(&scan, p, end, backslashes);
    scan.places = &places;
    for (; pg_sql_next_statement(&scan, &statement); sql->statements++) {
        if (sql->statements == 0) sql->kind = statement.kind;
        sql->kinds |= UINT64_C(1) << statement.kind;
        sql->session = sql->session || statement.session;
        sql->calls = sql->calls || statement.calls;
    }
    sql->highest = scan.highest;
    sql->questions = scan.questions;
    sql->escapes = scan.escapes;
    sql->names = scan.names;
    sql->native = scan.native;
    sql->unterminated = scan.unterminated;
    memcpy(sql->places, places.at, sizeof places.at);
}
