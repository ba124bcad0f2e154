// Defines the class of databases and its methods: the only file of this layer that knows all others.
#include "db/sqlite/database.h"

/* Database.load_classes: called when the Ruby part is loaded. */
static VALUE sqlite_load_classes(VALUE klass)
{
    sqlite_eBusy = rb_path2class("Heddle::DB::Busy");
    rb_gc_register_mark_object(sqlite_eBusy);
    sqlite_parameters_load_classes();
    sqlite_values_load_classes();
    sqlite_results_load_classes();
    return klass;
}

void Init_heddle_sqlite(void)
{
    VALUE db = rb_define_module_under(heddle_module, "DB");
    VALUE sqlite = rb_define_module_under(db, "SQLite");
    sqlite_cDatabase = rb_define_class_under(sqlite, "Database", rb_cObject);
    rb_gc_register_mark_object(sqlite_cDatabase);
    rb_define_alloc_func(sqlite_cDatabase, sqlite_database_allocate);
    rb_undef_method(sqlite_cDatabase, "initialize_copy");
    rb_define_singleton_method(sqlite_cDatabase, "load_classes", sqlite_load_classes, 0);
    sqlite_database_define();
    sqlite_api_define(sqlite_cDatabase);
    sqlite_statements_define();
    sqlite_columns_define();
    sqlite_parameters_define();
    sqlite_values_define();
    sqlite_results_define();
    sqlite_functions_define();
    sqlite_backup_define();
    sqlite_handlers_define(sqlite);
}
