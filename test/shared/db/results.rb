# frozen_string_literal: true

module DatabaseSuite
  # What a Result makes of its rows, with #connect and the rest of Queries.
  module Results
    ORDERS = "select 'Ann' as customer, 'lamp' as item, 9 as price union all select 'Ann', 'vase', 5 " \
      "union all select 'Bob', 'lamp', 9 union all select 'Eve', null, null order by customer, item"
    private_constant :ORDERS

    def test_query_value_or_nil
      with_connection do |db|
        none = "select 1 from (#{series(1)}) as t where 1 = 0"
        assert_equal [3, nil, nil],
          [db.query_value_or_nil("select ? + 1", 2), db.query_value_or_nil(none), db.query_value_or_nil("select null")]
        [series(2), "select 1, 2"].each do |sql|
          assert_includes assert_raises(Heddle::DB::UnexpectedRows) { db.query_value_or_nil(sql) }.message, sql
        end
      end
      with_pool(size: 1) do |pool|
        assert_equal 3, pool.query_value_or_nil("select ? + 1", 2)
        assert_equal [3, [3], [3]], %i[query_maybe_value query_maybe_row query_list]
          .map { |name| pool.public_send(name, "select :one + 1", one: 2) }
      end
    end

    def test_hashes_with_symbols
      with_connection do |db|
        result = db.query("select 1 as one, 'x' as two")
        assert_equal [{one: 1, two: "x"}], result.hashes(symbols: true)
        assert_equal [{"one" => 1, "two" => "x"}], result.hashes(symbols: false)
      end
    end

    def test_a_hash_of_rows
      with_connection do |db|
        orders = db.query(ORDERS)
        assert_equal({"Ann" => %w[lamp vase], "Bob" => ["lamp"], "Eve" => []},
          orders.to_h(key: "customer", value: :item, list: true))
        assert_equal [nil], orders.to_h(key: "customer", value: :item, list: true, nulls: true)["Eve"]
        assert_equal({["Ann", "lamp"] => 9, ["Ann", "vase"] => 5, ["Bob", "lamp"] => 9, ["Eve", nil] => nil},
          orders.to_h(key: [:customer, 1], value: 2))
        assert_equal [["lamp", 9], ["vase", 5]], orders.to_h(key: 0, value: %w[item price], list: true)["Ann"]
        assert_equal({"lamp" => 9, "vase" => 5, nil => nil}, orders.to_h(key: :item, value: :price))
        assert_equal({1 => "a"}, db.query("select 1, 'a'").to_h)
        assert_equal({"a" => 1}, db.query("select 1, 'a'").to_h { |number, text| [text, number] })
        error = assert_raises(Heddle::DB::UnexpectedRows) { orders.to_h(key: :customer, value: :item) }
        assert_match(/"Ann".*list: true/, error.message)
      end
    end

    def test_groups_of_rows
      with_connection do |db|
        orders = db.query(ORDERS)
        assert_equal [["Ann", [["lamp", 9], ["vase", 5]]], ["Bob", [["lamp", 9]]], ["Eve", []]], orders.group(:customer)
        assert_equal ["Eve", [[nil, nil]]], orders.group("customer", nulls: true).last
        assert_equal ["Ann", "lamp", [[9]]], orders.group([:customer, :item]).first
        assert_equal ["Ann", [["lamp", [[9]]], ["vase", [[5]]]]], orders.group(:customer, :item).first
        assert_equal [], db.query("select 1 as a from (#{series(1)}) as t where 1 = 0").group(:a)
      end
    end

    def test_casts
      with_connection do |db|
        orders = db.query(ORDERS)
        cast = orders.cast("item" => :to_sym, 2 => ->(price) { price * 2 })
        assert_equal [["Ann", :lamp, 18], ["Eve", nil, nil]], cast.rows.values_at(0, 3)
        assert_equal ["Ann", "lamp", 9], orders.first
        assert_equal({customer: "Ann", item: :lamp, price: 18}, cast.hashes(symbols: true).first)
        assert_raises(ArgumentError) { orders.cast("item" => 1) }
      end
    end

    def test_columns_that_do_not_exist
      with_connection do |db|
        orders = db.query(ORDERS)
        [-> { orders.group(:nothing) }, -> { orders.group(3) }, -> { orders.to_h(key: "nothing", value: 1) },
          -> { orders.cast(nothing: :to_s) }].each do |call|
          assert_includes assert_raises(ArgumentError, &call).message, "customer, item, price"
        end
        assert_match(/number/, assert_raises(ArgumentError) { db.query("select 1 as a, 2 as a").group(:a) }.message)
        assert_raises(ArgumentError) { orders.group }
        assert_raises(ArgumentError) { orders.to_h(key: 1) }
      end
    end
  end
end
