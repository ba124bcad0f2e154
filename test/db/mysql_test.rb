# frozen_string_literal: true

require "test_helper"
require "shared/db"
require "support/both_modes"
require "support/mariadb_dialect"
require "support/mariadb_server"

runs_on also: %i[newer_servers]

# The suite of every database, on a real MariaDB: over TCP, a UNIX socket and TLS, in threads and in tasks.
{"TCP" => {}, "Unix" => {socket: true}, "TLS" => {tls: true}}.each do |way, options|
  suites = [DatabaseSuite::Queries]
  suites << DatabaseSuite::Transactions if way != "Unix"
  suites.concat(DatabaseSuite::ONCE) if way == "TCP"
  BothModes.define("MySQL#{way}", StreamHelpers, MariaDBHelpers, *suites, MariaDBDialect) do
    define_method(:way) { options }

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

    def mistyped = [Object.new, [1, 2]]

    def unbindable
      [Float::NAN, Float::INFINITY, BigDecimal("NaN"), "\xff", Time.at(1 << 50), Date.new(12_000, 1, 1)]
    end
  end
end
