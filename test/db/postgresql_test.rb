# frozen_string_literal: true

require "test_helper"
require "shared/db"
require "support/both_modes"
require "support/postgresql_dialect"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/shaping_proxy"

runs_on also: %i[newer_servers]

# The suite of every database, on a real PostgreSQL: over TCP, a UNIX socket and a slow network that delivers bytes in
# pieces of any size, in threads and in tasks.
{"TCP" => {}, "Unix" => {socket: true}, "Slow" => {slow: true}}.each do |way, options|
  suites = [DatabaseSuite::Queries]
  suites << DatabaseSuite::Transactions if way != "Unix"
  suites.concat(DatabaseSuite::ONCE) if way == "TCP"
  BothModes.define("PostgreSQL#{way}", StreamHelpers, PostgreSQLHelpers, ShapingProxies, *suites, PostgreSQLDialect) do
    define_method(:way) { options }

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

    def mistyped = [Object.new, Class]

    def unbindable = ["\xff", "a\0b"]
  end
end
