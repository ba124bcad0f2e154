// Defines the class of protocols and its methods: the only file of this layer that knows all others.
#include "db/postgresql/commands.h"
#include "db/postgresql/copy.h"
#include "db/postgresql/session.h"

void Init_heddle_postgresql(void)
{
    VALUE db = rb_define_module_under(heddle_module, "DB");
    VALUE postgresql = rb_define_module_under(db, "PostgreSQL");
    postgresql_cProtocol = rb_define_class_under(postgresql, "Protocol", db_cProtocol);
    rb_gc_register_mark_object(postgresql_cProtocol);
    rb_define_alloc_func(postgresql_cProtocol, postgresql_protocol_allocate);
    postgresql_parameters_define();
    postgresql_types_define();
    postgresql_columns_define();
    postgresql_values_define();
    postgresql_results_define();
    postgresql_login_define();
    postgresql_sql_define();
    postgresql_session_define();
    postgresql_commands_define();
    postgresql_copy_define();
    postgresql_copy_values_define();
    postgresql_copy_in_define();
    postgresql_copy_out_define();
    postgresql_pipeline_define();
    postgresql_interrupted_define();
    postgresql_statement_timeout_define();
    postgresql_multiplexed_define();
}
