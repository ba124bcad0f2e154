// Copies a database while others use it, some pages at a time. From "Using the SQLite Online Backup API" on sqlite.org.
#include "db/sqlite/database.h"

struct copying {
    sqlite3_backup *at;
    struct sqlite_database *to;
    int code;
};

static VALUE begin_body(struct sqlite_call *call)
{
    struct copying *copying = (struct copying *)call->arguments[0];
    copying->at = sqlite_api.backup_init(copying->to->core->db, "main", call->database->core->db, "main");
    return copying->at ? Qnil : sqlite_error_value(copying->to, SQLITE_ERROR);
}

static VALUE step_body(struct sqlite_call *call)
{
    struct copying *copying = (struct copying *)call->arguments[0];
    call->database->stepping = true;
    copying->code = sqlite_api.backup_step(copying->at, NUM2INT(call->arguments[1]));
    call->database->stepping = false;
    sqlite_settle(call->database);
    return Qnil;
}

static VALUE sqlite_finish_body(struct sqlite_call *call)
{
    struct copying *copying = (struct copying *)call->arguments[0];
    int code = sqlite_api.backup_finish(copying->at);
    copying->at = NULL;
    return code == SQLITE_OK ? Qnil : sqlite_error_value(copying->to, code);
}

struct backup {
    VALUE self;
    VALUE pages;
    struct copying copying;
};

static VALUE call_with(struct backup *backup, VALUE (*body)(struct sqlite_call *))
{
    struct sqlite_call call = {
        .self = backup->self, .body = body, .arguments = {(VALUE)&backup->copying, backup->pages}};
    return sqlite_call(&call);
}

// The block waits, reports, and may use the source. It tells whether a busy database is tried again.
static VALUE copy_all(VALUE argument)
{
    struct backup *backup = (struct backup *)argument;
    struct copying *copying = &backup->copying;
    do {
        call_with(backup, step_body);
        int all = sqlite_api.backup_pagecount(copying->at);
        VALUE progress[] = {INT2NUM(all - sqlite_api.backup_remaining(copying->at)), INT2NUM(all),
                            INT2NUM(copying->code)};
        if (!RTEST(rb_yield_values2(3, progress))) break;
    } while (copying->code != SQLITE_DONE);
    return Qnil;
}

// The source may have been closed by the block: the copy keeps it open until it is finished.
static VALUE copy_end(VALUE argument)
{
    struct backup *backup = (struct backup *)argument;
    if (backup->copying.at && sqlite_core_alive(backup->copying.to->core))
        sqlite_api.backup_finish(backup->copying.at); // not in a child that the block has forked
    return Qnil;
}

static VALUE copy(VALUE argument)
{
    struct backup *backup = (struct backup *)argument;
    copy_all(argument);
    return call_with(backup, sqlite_finish_body);
}

/*
 * call-seq: database.copy_to(other, pages) { |done, all, code| … } -> nil or error
 *
 * Copies the database into that of another connection, and calls the block after each +pages+ pages with SQLite's
 * answer. The block returns whether to go on.
 */
static VALUE database_copy_to(VALUE self, VALUE other, VALUE pages)
{
    struct backup backup = {.self = self, .pages = pages};
    NUM2INT(pages);
    backup.copying.to = sqlite_database_of(other);
    if (!backup.copying.to->core || !sqlite_core_alive(backup.copying.to->core) || backup.copying.to->core->busy)
        rb_raise(rb_eIOError, "the copy's connection is closed or busy");
    VALUE error = call_with(&backup, begin_body);
    if (!NIL_P(error)) return error;
    error = rb_ensure(copy, (VALUE)&backup, copy_end, (VALUE)&backup);
    RB_GC_GUARD(other);
    return error;
}

void sqlite_backup_define(void)
{
    rb_define_method(sqlite_cDatabase, "copy_to", database_copy_to, 2);
}
