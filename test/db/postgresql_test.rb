# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "shared/db/queries"
require "shared/db/transactions"
require "shared/db/pools"
require "shared/db/errors"
require "shared/db/kept_pools"
require "shared/db/listening"
require "shared/db/named_parameters"
require "shared/db/results"
require "shared/db/tables"
require "shared/db/virtual_statements"
require "support/shaping_proxy"

# The suite of every database, on a real PostgreSQL: over TCP, a UNIX socket and a slow network that delivers bytes in
# pieces of any size, in threads and in tasks.
{"TCP" => {}, "Unix" => {socket: true}, "Slow" => {slow: true}}.each do |way, options|
  %i[thread fiber].each do |wait|
    test = Class.new(Minitest::Test) do
      include StreamHelpers
      include PostgreSQLHelpers
      include ShapingProxies
      include DatabaseSuite::Queries
      include DatabaseSuite::Transactions if way != "Unix"
      include DatabaseSuite::Pools if way == "TCP"
      include DatabaseSuite::Errors if way == "TCP"
      include DatabaseSuite::Results if way == "TCP"
      include DatabaseSuite::KeptPools if way == "TCP"
      include DatabaseSuite::VirtualStatements if way == "TCP"
      include DatabaseSuite::NamedParameters if way == "TCP"
      include DatabaseSuite::Tables if way == "TCP"
      include DatabaseSuite::Listening if way == "TCP"

      mode wait
      hard_deadline 60

      define_method(:way) { options }
      define_method(:in_host) { |&block| (wait == :fiber && !Fiber.scheduler) ? Heddle.run(&block) : block.call }

      def setup
        @server = postgresql
        @url = way[:slow] ? slow_url : @server.url
      end

      # The rate divides large answers: a piece ends where the time for its bytes is over.
      def slow_url
        proxy = shaping_proxy(@server, delay: 0.001, jitter: 0.002, rate: 20_000_000, direction: "both")
        @server.url.sub(/@.*\//, "@#{proxy.host}:#{proxy.port}/")
      end

      def connect(**options)
        Heddle::DB.connect(@url, timeout: 20, **ways, **options)
      end

      def pool(**options)
        Heddle::DB::Pool.new(@url, timeout: 20, **ways, **options)
      end

      def ways
        way[:socket] ? {socket: @server.socket_dir} : {}
      end

      # The server answers the cancel.
      def assert_interrupted(db) = assert_goes_on(db)

      def series(count) = "select n::int from generate_series(1, #{count}) as n"

      def sleep_sql(seconds) = "select pg_sleep(#{seconds})"

      def sleepers(db) = db.query_value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'")

      def a_comment_without_a_space = ["select 5--?", 5]

      def mistyped = [Object.new, Class]

      def unbindable = ["\xff", "a\0b"]

      # The server has closed its prepared statements.
      def forgetting_sql = "deallocate all"

      # The session that waits for longer than its deadlock_timeout looks for a deadlock, and is given up.
      def survive_deadlocks(db) = db.query("set deadlock_timeout = '15s'")

      def fall_to_deadlocks(db) = db.query("set deadlock_timeout = '50ms'")

      # It looks once: whoever is to be found must wait by then.
      def waited_for?(db)
        db.query_value(<<~SQL).positive?
          select count(*) from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid))
        SQL
      end

      def database_type = :postgresql

      # A variable of the session: how to set it, how to read it, what that returns, what the server has without it.
      def session_setting = ["set work_mem = '7MB'", "select current_setting('work_mem')", "7MB", "4MB"]

      def kill_sql(id) = "select pg_terminate_backend(#{id})"

      def lock_timeout_sql = "set lock_timeout = '1s'"

      def limit_sql(seconds) = "set statement_timeout = '#{seconds}s'"

      def committing
        ["commit", "rollback", "begin", "start transaction", "end", "abort",
          "prepare transaction 'x'", "/* x */ COMMIT"]
      end
    end
    Object.const_set("PostgreSQL#{way}#{wait.capitalize}Test", test)
  end
end
