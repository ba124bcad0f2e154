// Defines the class of protocols and its methods: the only file of this layer that knows all others.
#include "db/mysql/protocol.h"

void Init_heddle_mysql(void)
{
    VALUE db = rb_define_module_under(heddle_module, "DB");
    VALUE mysql = rb_define_module_under(db, "MySQL");
    mysql_cProtocol = rb_define_class_under(mysql, "Protocol", db_cProtocol);
    rb_gc_register_mark_object(mysql_cProtocol);
    rb_define_alloc_func(mysql_cProtocol, mysql_protocol_allocate);
    mysql_parameters_define();
    mysql_values_define();
    mysql_results_define();
    mysql_login_define();
    mysql_commands_define();
    mysql_multiplexed_define();
    mysql_sql_define();
    mysql_idle_define();
}
