# frozen_string_literal: true

require "heddle"
require "heddle/db"
require "tmpdir"

# Databases of SQLite for tests: files in a folder of their own, which is removed after the test.
module SQLiteHelpers
  # Counts without an end.
  ENDLESS = "with recursive c (n) as (select 1 union all select n + 1 from c) select count(*) from c"

  # The SQL function sleep(seconds), which waits as Ruby's does, and how many are asleep.
  module Sleeping
    @count = 0

    class << self
      attr_accessor :count

      def define(db)
        db.create_function("sleep", arity: 1) do |seconds|
          self.count += 1
          sleep(seconds)
          0
        ensure
          self.count -= 1
        end
      end
    end
  end

  def setup
    super
    @folder = Dir.mktmpdir("heddle-sqlite")
    @path = File.join(@folder, "base.db")
  end

  def teardown
    super
    FileUtils.chmod_R(0o700, @folder)
    FileUtils.rm_rf(@folder)
  end

  # A connection that can sleep. The shared suite counts the statements that stay prepared by default in transactions
  # only, as on servers, which have a limit of them.
  def connect(**options)
    Heddle::DB.connect("sqlite://#{@path}", **suited(options))
  end

  def with_db(**options)
    db = connect(**options)
    yield db
  ensure
    db&.close
  end

  def pool(**options)
    Heddle::DB::Pool.new("sqlite://#{@path}", **suited(options))
  end

  def suited(options)
    init = [Sleeping.method(:define), *options[:init]]
    options = options.merge(database: File.join(@folder, options[:database]), create: false) if options[:database]
    {timeout: Slowness.stretch(20), statement_cache: :transaction}.merge(options, init: init)
  end
end
