# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/mariadb_server"

# A collection at every allocation, and one that moves what may be moved: whatever C code holds of Ruby's must be known to it. In a
# process of its own, whose heap is small.
class MySQLCollectionsTest < Minitest::Test
  include LoopHelpers

  def test_collections_at_every_allocation
    server = begin
      TestMariaDB.shared
    rescue Servers::Unavailable => error
      skip error.message
    end
    out = assert_child(<<~'RUBY', env: {"SERVER" => server.url, "RUBYLIB" => bigdecimal}, timeout: 50)
      require "date"
      require "heddle/db"
      GC.auto_compact = true if GC.respond_to?(:auto_compact=)
      def stress(level)
        GC.stress = level
        yield
      ensure
        GC.stress = false
      end
      work = lambda do
        db = Heddle::DB.connect(ENV.fetch("SERVER"), timeout: 40)
        db.query("create temporary table t (id int primary key auto_increment, a varchar(100), b double, c datetime(6), d decimal(20,5), e blob, f time, g date, h bigint unsigned)")
        insert = "insert into t (a, b, c, d, e, f, g, h) values (?, ?, ?, ?, ?, ?, ?, ?)"
        row = ["näme", 1.5, Time.utc(2024, 1, 2, 3, 4, 5), BigDecimal("12.34567"), "\0\xff".b * 50, nil, Date.new(2024, 5, 6), 2**63 + 1]
        right = []
        stress(true) { db.query(insert, *row) }
        stress(1) { 4.times { db.query(insert, *row) } }
        columns = "a, b, c, d, e, f, g, h"
        stress(true) { right << (db.query("select #{columns} from t where id = ?", 1).to_a.map { |found| found.to_a.flatten.last } == [2**63 + 1]) }
        rows = stress(1) { db.query("select #{columns} from t where id > ?", 0).to_a }
        right << (rows.size == 5 && rows.uniq.size == 1 && rows.first.inspect.include?("näme"))
        right << (stress(1) { db.transaction { db.query_value("select count(*) from t") } } == 5)
        stress(1) { db.query("select nonsense from nowhere") rescue right << $!.is_a?(Heddle::DB::Error) }
        GC.compact if GC.respond_to?(:compact)
        right << (db.query_value("select d from t where id = ?", 2) == BigDecimal("12.34567"))
        db.close
        right.uniq
      end
      p Heddle.run(&work)
    RUBY
    assert_equal "[true]\n", out
  end

  private

  # The child does without RubyGems, which knows where it is.
  def bigdecimal = Gem::Specification.find_by_name("bigdecimal").full_require_paths.join(":")
end
