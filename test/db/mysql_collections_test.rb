# frozen_string_literal: true

require "test_helper"
require "support/collections"
require "support/mariadb_server"

class MySQLCollectionsTest < Minitest::Test
  include MariaDBHelpers
  include Collections

  def test_collections_at_every_allocation
    assert_right_under_collections(<<~'RUBY', {"SERVER" => mariadb.url, "RUBYLIB" => bigdecimal})
      require "date"
      require "heddle/db"
      db = Heddle::DB.connect(ENV.fetch("SERVER"), timeout: 40)
      db.query("create temporary table t (id int primary key auto_increment, a varchar(100), b double, c " \
        "datetime(6), d decimal(20,5), e blob, f time, g date, h bigint unsigned)")
      insert = "insert into t (a, b, c, d, e, f, g, h) values (?, ?, ?, ?, ?, ?, ?, ?)"
      row = ["näme", 1.5, Time.utc(2024, 1, 2, 3, 4, 5), BigDecimal("12.34567"), "\0\xff".b * 50, nil,
        Date.new(2024, 5, 6), 2**63 + 1]
      right = []
      stress(true) { db.query(insert, *row) }
      stress(1) { 4.times { db.query(insert, *row) } }
      columns = "a, b, c, d, e, f, g, h"
      stress(true) do
        right << (db.query("select #{columns} from t where id = ?", 1).to_a.map { |found| found.to_a.flatten.last } ==
          [2**63 + 1])
      end
      rows = stress(1) { db.query("select #{columns} from t where id > ?", 0).to_a }
      right << (rows.size == 5 && rows.uniq.size == 1 && rows.first.inspect.include?("näme"))
      right << (stress(1) { db.transaction { db.query_value("select count(*) from t") } } == 5)
      stress(1) { db.query("select nonsense from nowhere") rescue right << $!.is_a?(Heddle::DB::Error) }
      GC.compact if GC.respond_to?(:compact)
      right << (db.query_value("select d from t where id = ?", 2) == BigDecimal("12.34567"))
      db.close
      right
    RUBY
  end
end
