#include "db/result.h"

static VALUE cResult, eServerError;
static ID id_description, id_rows, id_affected_rows, id_last_insert_id, id_warnings, id_following;

VALUE db_class(const char *name)
{
    VALUE found = rb_path2class(name);
    rb_gc_register_mark_object(found);
    return found;
}

void db_result_load_classes(void)
{
    if (cResult) return;
    id_description = rb_intern("@description");
    id_rows = rb_intern("@rows");
    id_affected_rows = rb_intern("@affected_rows");
    id_last_insert_id = rb_intern("@last_insert_id");
    id_warnings = rb_intern("@warnings");
    id_following = rb_intern("@following");
    eServerError = db_class("Heddle::DB::ServerError");
    cResult = db_class("Heddle::DB::Result");
}

VALUE db_result_new(VALUE description, VALUE rows, VALUE affected)
{
    return db_result_of(cResult, description, rows, affected);
}

VALUE db_result_of(VALUE klass, VALUE description, VALUE rows, VALUE affected)
{
    VALUE result = rb_obj_alloc(klass);
    rb_ivar_set(result, id_description, description);
    rb_ivar_set(result, id_rows, rows);
    if (affected != INT2FIX(0)) rb_ivar_set(result, id_affected_rows, affected);
    return result;
}

void db_result_set_last_id(VALUE result, VALUE id)
{
    rb_ivar_set(result, id_last_insert_id, id);
}

void db_result_set_warnings(VALUE result, VALUE count)
{
    rb_ivar_set(result, id_warnings, count);
}

void db_result_set_following(VALUE result, VALUE following)
{
    rb_ivar_set(result, id_following, following);
}

bool db_result_has_rows(VALUE result)
{
    return !NIL_P(rb_ivar_get(result, id_description));
}

bool db_is_result(VALUE value)
{
    return rb_obj_class(value) == cResult;
}

VALUE db_server_error(VALUE classes, VALUE key, VALUE message)
{
    return rb_exc_new_str(rb_hash_lookup2(classes, key, eServerError), message);
}
