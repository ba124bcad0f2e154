# frozen_string_literal: true

module DatabaseSuite
  # One statement for several databases, with #database_type and the rest of Queries.
  module VirtualStatements
    def test_virtual_statements_with_a_text_for_each_database
      with_connection do |db|
        assert_equal database_type, db.database_type
        texts = Heddle::DB.virtual_statement(mysql: "select 'mysql', ?", postgresql: "select 'postgresql', ?",
          sqlite: "select 'sqlite', ?")
        name = (database_type == :mariadb) ? "mysql" : database_type.to_s
        own = Heddle::DB.virtual_statement(mariadb: "select 'mariadb', ?", mysql: "select 'mysql', ?",
          postgresql: "select 'postgresql', ?", sqlite: "select 'sqlite', ?")
        asked = []
        block = Heddle::DB.virtual_statement { |type| asked << type && "select '#{type}', ?" }
        assert_equal [name, 1], db.query_row(texts, 1)
        2.times { assert_equal [database_type.to_s, 2], db.query_row(block, 2) }
        assert_equal [database_type], asked
        assert_equal [database_type.to_s, 3], db.prepare(own).query(3).first
        assert_equal [[name, 4]], db.each_row(texts, 4).to_a
        assert_equal [name, 5], db.pipeline { |p| p.query(texts, 5) }.value.first
      end
    end

    def test_virtual_statements_stay_prepared
      statement = Heddle::DB.virtual_statement { "select ? + 1" }
      with_connection do |db|
        events = []
        db.on_query { |event| events << event.cached }
        assert_equal [2, 3, 4], [1, 2, 3].map { |n| db.query_value(statement, n) }
        assert_equal [false, true, true], events
        assert_equal 1, db.cached_statements
        db.query_value("select ? + 1", 1)
        assert_equal 1, db.cached_statements
      end
      with_connection(statement_cache: :never) do |db|
        assert_equal [2, 3], [1, 2].map { |n| db.query_value(statement, n) }
        assert_equal 0, db.cached_statements
      end
    end

    def test_virtual_statements_without_a_text
      with_connection do |db|
        [{}, {oracle: "select 1"}].each do |texts|
          assert_raises(ArgumentError) { Heddle::DB.virtual_statement(**texts) }
        end
        assert_raises(ArgumentError) { Heddle::DB.virtual_statement(mysql: "select 1") { "select 1" } }
        assert_raises(TypeError) { Heddle::DB.virtual_statement(mysql: nil) }
        strange = (database_type == :postgresql) ? {mysql: "select 1"} : {postgresql: "select 1"}
        error = assert_raises(ArgumentError) { db.query(Heddle::DB.virtual_statement(**strange)) }
        assert_match(/no text for #{database_type}.*for #{strange.keys.first}/, error.message)
        assert_raises(TypeError) { db.query(Heddle::DB.virtual_statement { nil }) }
        assert_predicate db, :healthy?
      end
    end

    def test_a_failed_transaction_needs_its_rollback
      with_table("id int primary key") do |db, table|
        refute_predicate db, :needs_rollback?
        db.start_transaction
        refute_predicate db, :needs_rollback?
        db.exec("insert into #{table} values (1)")
        assert_raises(Heddle::DB::UniqueViolation) { db.exec("insert into #{table} values (1)") }
        # PostgreSQL's transactions fail with any error.
        assert_equal database_type == :postgresql, db.needs_rollback?
        db.rollback
        refute_predicate db, :needs_rollback?
        db.transaction do
          assert_raises(Heddle::DB::ServerError) { db.transaction { db.query("select * from nowhere_at_all") } }
          refute_predicate db, :needs_rollback?
        end
      end
    end
  end
end
