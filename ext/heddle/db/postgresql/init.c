// Defines the class of protocols and its methods: the only file of this layer that knows all others.
#include "db/postgresql/copy.h"

void Init_heddle_postgresql(void)
{
    VALUE db = rb_define_module_under(heddle_module, "DB");
    VALUE postgresql = rb_define_module_under(db, "PostgreSQL");
    postgresql_cProtocol = rb_define_class_under(postgresql, "Protocol", db_cProtocol);
    rb_gc_register_mark_object(postgresql_cProtocol);
    rb_define_alloc_func(postgresql_cProtocol, postgresql_protocol_allocate);
    postgresql_parameters_init();
    postgresql_types_init();
    postgresql_columns_init();
    postgresql_values_init();
    postgresql_results_init();
    postgresql_login_init();
    postgresql_sql_init();
    postgresql_commands_init();
    postgresql_copy_init();
    postgresql_copy_values_init();
    postgresql_copy_in_init();
    postgresql_copy_out_init();
    postgresql_pipeline_init();
    postgresql_interrupted_init();
}
