# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
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

# The suite of every database, on a real MariaDB: over TCP, a UNIX socket and TLS, in threads and in tasks.
{"TCP" => {}, "Unix" => {socket: true}, "TLS" => {tls: true}}.each do |way, options|
  %i[thread fiber].each do |wait|
    test = Class.new(Minitest::Test) do
      include StreamHelpers
      include MariaDBHelpers
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
        @server = mariadb
      end

      def connect(**options)
        Heddle::DB.connect(@server.url, timeout: 20, **ways, **options)
      end

      def pool(**options)
        Heddle::DB::Pool.new(@server.url, timeout: 20, **ways, **options)
      end

      def ways
        {socket: (@server.socket if way[:socket]), tls: (way[:tls] ? {ca_file: @server.ca_file} : nil)}.compact
      end

      def series(count) = "select seq from seq_1_to_#{count}"

      def sleep_sql(seconds) = "select sleep(#{seconds})"

      def sleepers(db)
        db.query_value("select count(*) from information_schema.processlist where state = 'User sleep'")
      end

      def a_comment_without_a_space = ["select 5--?", 1, 6] # MySQL wants a space behind --

      def mistyped = [Object.new, [1, 2]]

      def unbindable
        [Float::NAN, Float::INFINITY, BigDecimal("NaN"), "\xff", Time.at(1 << 50), Date.new(12_000, 1, 1)]
      end

      def forgetting_sql = "set @a = 1"

      def database_type = :mariadb

      # A variable of the session: how to set it, how to read it, what that returns, what the server has without it.
      def session_setting = ["set sql_safe_updates = 1", "select @@sql_safe_updates", 1, 0]

      def kill_sql(id) = "kill #{id}"

      def lock_timeout_sql = "set innodb_lock_wait_timeout = 1"

      def limit_sql(seconds) = "set max_statement_time = #{seconds}"

      def committing
        ["create table x (a int)", "/* x */ DROP TABLE x", "commit", "rollback", "begin", "start transaction",
          "alter table x add b int",
          "truncate table x", "set autocommit = 1", "lock tables x read", "/*!50000 create table x (a int) */"]
      end
    end
    Object.const_set("MySQL#{way}#{wait.capitalize}Test", test)
  end
end
