# frozen_string_literal: true

require "test_helper"
require "shared/db"
require "support/both_modes"
require "support/mysql_dialect"
require "support/mysql_server"
require "support/stream_helpers"

runs_on short: false

# The suite of every database, on MySQL itself: over TCP and TLS, in threads and in tasks.
{"TCP" => {}, "TLS" => {tls: {verify: false}}}.each do |way, options|
  suites = [DatabaseSuite::Queries, DatabaseSuite::Transactions]
  suites.concat(DatabaseSuite::ONCE) if way == "TCP"
  BothModes.define("MySQLItself#{way}", StreamHelpers, MySQLHelpers, *suites, MySQLDialect) do
    define_method(:ways) { options }

    def setup
      @server = mysql
    end

    def connect(**options)
      Heddle::DB.connect(@server.url, timeout: 20, **ways, **options)
    end

    def pool(**options)
      Heddle::DB::Pool.new(@server.url, timeout: 20, **ways, **options)
    end

    def mistyped = [Object.new, [1, 2]]

    def unbindable
      [Float::NAN, Float::INFINITY, BigDecimal("NaN"), "\xff", Time.at(1 << 50), Date.new(12_000, 1, 1)]
    end
  end
end
