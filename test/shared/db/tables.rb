# frozen_string_literal: true

module DatabaseSuite
  # list_tables and table_exists?, with the rest of Queries and Pools.
  module Tables
    def test_tables
      with_table("id int") do |db, table|
        assert_includes db.list_tables, table
        assert db.table_exists?(table)
        assert db.table_exists?(table.to_sym)
        refute db.table_exists?("#{table}x")
        refute db.table_exists?("#{table}' or '1' = '1")
        schema = db.query_value((database_type == :postgresql) ? "select current_schema()::text" : "select database()")
        assert_includes db.list_tables(schema: schema), table
        assert db.table_exists?(table, schema: schema)
        refute db.table_exists?(table, schema: "information_schema")
        assert_equal [], db.list_tables(schema: "nowhere_at_all")
        assert_includes db.list_tables(schema: "information_schema").map(&:downcase), "tables"
        db.transaction { assert db.table_exists?(table) }
        with_pool(size: 2) do |pool|
          each_at_once(4) { assert_includes pool.list_tables, table }
          assert pool.table_exists?(table, schema: schema)
        end
      end
    end
  end
end
