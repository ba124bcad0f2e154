# frozen_string_literal: true

module DatabaseSuite
  # :name, lists, bound statements and quoted names, with the rest of Queries and Pools.
  module NamedParameters
    TEXT = "select :a as x, ':b' as y, :long_name as z, :a as w -- :c\n /* :d */"
    private_constant :TEXT

    def test_named_parameters
      with_connection do |db|
        assert_equal [[1, ":b", "é", 1]], db.query(TEXT, a: 1, long_name: "é").rows
        assert_equal [nil, 2], db.query_row("select :é, :b", :é => nil, :b => 2)
        assert_equal 3, db.query_value("select :n + 1", n: 2)
        assert_equal 3, db.query_value_or_nil("select :n + 1", n: 2)
        assert_equal [3], db.query_row_or_nil("select :n + 1", n: 2)
        assert_equal [3], db.query_column("select :n + 1", n: 2)
        assert_equal [[3]], db.each_row("select :n + 1", n: 2, fetch: 2).to_a
        assert_equal [[3]], db.pipeline { |p| p.query("select :n + 1", n: 2) }.value.rows
        statement = Heddle::DB.virtual_statement { "select :n + 2" }
        assert_equal [3, 4], [1, 2].map { |n| db.query_value(statement, n: n) }
      end
      with_table("id int") do |db, table|
        assert_equal 2, db.exec("insert into #{table} values (:a), (:b)", a: 1, b: 2)
        assert_equal [1], db.transaction { db.query_column("select id from #{table} where id < :most", most: 2) }
      end
    end

    def test_named_parameters_of_a_pool
      with_pool(size: 2) do |pool|
        statement = pool.prepare("select :n + 1")
        each_at_once(6) do |n|
          assert_equal n + 1, pool.query_value("select :n + 1", n: n)
          assert_equal n + 1, statement.query(n: n).first.first
          assert_equal [[n]], pool.each_row("select :n", n: n).to_a
        end
      end
    end

    # each_row has an option of this name.
    def test_a_parameter_named_fetch
      with_connection do |db|
        assert_equal [[7]], db.each_row("select :fetch + 0", fetch: 7).to_a
        assert_equal [[8]], db.each_row("select :fetch + :n", fetch: 7, n: 1).to_a
        assert_equal [[7]], db.each_row(Heddle::DB.bind("select :fetch + 0", fetch: 7), fetch: 2).to_a
        assert_equal [[1]], db.each_row("select :n + 0", n: 1, fetch: 2).to_a
        assert_raises(ArgumentError) { db.each_row("select :fetch + :n", n: 1).to_a }
        assert_raises(ArgumentError) { db.each_row("select 1", fetch: 0).to_a }
      end
      with_pool(size: 1) { |pool| assert_equal [[7]], pool.each_row("select :fetch + 0", fetch: 7).to_a }
    end

    def test_missing_unknown_and_mixed_parameters
      with_connection do |db|
        {{a: 1} => "no value for :long_name", {a: 1, long_name: 2, b: 3} => "no parameter :b: it has :a, :long_name"}
          .each do |named, message|
          assert_includes assert_raises(ArgumentError) { db.query(TEXT, **named) }.message, message
        end
        assert_match(/no parameters.*:a/, assert_raises(ArgumentError) { db.query("select ?", a: 1) }.message)
        assert_match(/not both/, assert_raises(ArgumentError) { db.query(TEXT, 1, a: 1) }.message)
        assert_raises(TypeError) { db.query("select :a", a: Object.new) }
        assert_raises(TypeError) { db.query(nil, a: 1) }
        assert_predicate db, :healthy?
        assert_equal 1, db.query_value("select :a", a: 1)
      end
    end

    # Each message says what happened, to which statement, and what to do.
    def test_messages_of_values_that_do_not_fit
      takes = "this statement takes keywords: query(sql, a: …, b: …)"
      both = "select :a, :b"
      {[both, {a: 1}] => "no value for :b; #{takes}: #{both}",
       [both, {a: 1, b: 2, c: 3}] => "the statement has no parameter :c: it has :a, :b: #{both}",
       ["select ?", {a: 1}] => "the statement has no parameters such as :name, but values for :a; write these names " \
         "in it, or give the values without names: select ?",
       ["select ?, ?", 1] => "wrong number of values for the statement (given 1, expected 2): select ?, ?"}
        .each { |(sql, values), message| assert_misfit(message, sql, values) }
      with_connection do |db|
        [{a: 1, b: 2}, {"a" => 1, "b" => 2}].each do |hash|
          error = assert_raises(ArgumentError) { db.query(both, hash) } # in braces
          assert_equal "1 value without a name; #{takes}: #{both}", error.message
          next if db.driver.numbered_placeholders? # PostgreSQL takes a Hash for JSON

          error = assert_raises(TypeError) { db.query("select ?", hash) }
          assert_match(/a value of the class Hash.*String, .*Date, .*Heddle::DB::Duration/, error.message)
        end
      end
      assert_misfit(/\b#{Regexp.escape(takes)}/, both, 1)
      assert_misfit(/\bgive all parameters of a statement as \?, or all as :name/, "select :a, ?", 1) if mixes?
    end

    def test_lists
      with_table("id int") do |db, table|
        db.exec("insert into #{table} values (1), (2), (3)")
        find = "select id from #{table} where id in (:ids) and id < :most order by id"
        assert_equal [1, 3], db.query_column(find, ids: Heddle::DB.list([1, 3, 7]), most: 9)
        assert_equal [2], db.query_column(find, ids: Heddle::DB.list([2]), most: 9)
        bound = Heddle::DB.bind("select id from #{table} where id in (?) and id <> ?", Heddle::DB.list([1, 2]), 1)
        2.times { assert_equal [2], db.query_column(bound) }
        assert_equal [1, 2], db.query_column("select id from #{table} where id not in (:ids) order by id",
          ids: Heddle::DB.list([3, 4]))
        assert_match(/without values/, assert_raises(ArgumentError) { Heddle::DB.list([]) }.message)
        assert_raises(TypeError) { Heddle::DB.list(1) }
        assert_raises(ArgumentError) { db.query(Heddle::DB.bind("select ?, ?", Heddle::DB.list([1]))) }
        refute_includes Heddle::DB.bind("select ?", "secret").inspect, "secret"
      end
    end

    def test_bound_statements
      with_connection do |db|
        bound = Heddle::DB.bind("select ? + 1", 2)
        assert_equal [3, [3], [[3]]], [db.query_value(bound), db.query_row(bound), db.each_row(bound).to_a]
        assert_equal [[3]], db.pipeline { |p| p.query(bound) }.value.rows
        named = Heddle::DB.bind(Heddle::DB.virtual_statement { "select :n + 1" }, n: 2)
        2.times { assert_equal 3, db.query_value(named) }
        assert_equal 1, db.cached_statements
        assert_raises(ArgumentError) { db.query(bound, 1) }
        assert_raises(TypeError) { Heddle::DB.bind(nil) }
      end
      with_pool(size: 1) { |pool| assert_equal 3, pool.query_value(Heddle::DB.bind("select ? + 1", 2)) }
    end

    def test_quoted_names
      with_connection do |db|
        ["select", "a b", "Ünï", "a`b\"c'd?:e"].each do |name|
          assert_equal [name], db.query("select 1 as #{db.quote_identifier(name)}").fields
        end
        mark = db.quote_identifier(:a)[0]
        assert_equal "#{mark}a#{mark}.#{mark}b#{mark}", db.quote_identifier(:a, "b")
        ["", "a\0b", "\xff"].each { |name| assert_raises(ArgumentError) { db.quote_identifier(name) } }
        assert_raises(ArgumentError) { db.quote_identifier }
      end
    end

    private

    # The message of every way to run a statement.
    def assert_misfit(message, sql, values)
      ways = [->(db, *positional, **named) { db.query(sql, *positional, **named) },
        ->(db, *positional, **named) { db.transaction { db.query(sql, *positional, **named) } },
        ->(db, *positional, **named) { db.each_row(sql, *positional, **named).to_a },
        ->(db, *positional, **named) { db.pipeline { |p| p.query(sql, *positional, **named) }.value }]
      ways << ->(db, *positional) { db.prepare(sql).query(*positional) } unless values.is_a?(Hash)
      with_connection do |db|
        ways.each_with_index do |way, index|
          error = assert_raises(ArgumentError, Heddle::DB::ServerError, "way #{index}") do
            values.is_a?(Hash) ? way.call(db, **values) : way.call(db, *values)
          end
          assert_operator message, :===, error.message.sub("; an operator's ? is written ??", ""), "way #{index}"
          assert_predicate db, :healthy?
        end
      end
    end

    # Whether a ? beside a name is a parameter.
    def mixes? = with_connection { |db| !db.driver.numbered_placeholders? }
  end
end
