# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"

runs_on also: %i[newer_servers]

# What depends on the version of a real server. Each test says what the server at hand must do, be it old or new:
# bin/test runs this file on the machine's own PostgreSQL, and on that of Debian unstable.
class PostgreSQLVersionsTest < Minitest::Test
  include StreamHelpers
  include OwnPostgreSQLHelpers

  hard_deadline 60

  DB = Heddle::DB
  LONG_KEYS = 18 # the first version with protocol 3.2
  DIRECT_TLS = 17
  INFINITE_INTERVALS = 17

  def setup
    @watcher = DB.connect(postgresql.url, timeout: 20)
    @version = @watcher.driver.version.to_i
  end

  def teardown
    @watcher&.close
  end

  def connected(**options)
    db = DB.connect(postgresql.url, timeout: 20, application_name: "versioned", **options)
    yield db
  ensure
    db&.close
  end

  def login_of(db) = db.driver.instance_variable_get(:@login)

  def tls(**options) = {sslmode: "verify-full", sslrootcert: postgresql.ca_file, **options}

  def asleep
    @watcher.query_value("select count(*) from pg_stat_activity where wait_event = 'PgSleep' " \
      "and application_name = 'versioned'")
  end

  # The server takes a cancel only with the whole key.
  def assert_stopped(**options)
    %i[thread fiber].each do |mode|
      in_mode(mode) do
        connected(**options) do |db|
          assert_equal((@version >= LONG_KEYS) ? 32 : 4, login_of(db).secret.bytesize)
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { db.query("select pg_sleep(30)") } }
        end
      end
      wait_until(what: "the end of the query, #{options}") { asleep.zero? }
    end
  end

  def test_the_length_of_a_cancels_key
    [{}, tls, {socket: postgresql.socket_dir}].each { |way| assert_stopped(**way) }
  end

  def test_a_wrong_key_of_the_right_length_stops_nothing
    connected do |db|
      key = login_of(db).secret
      login_of(db).instance_variable_set(:@secret, key.byteslice(0, key.bytesize - 1) + (key[-1].ord ^ 1).chr.b)
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { db.query("select pg_sleep(30)") } }
      assert_equal 1, asleep
      @watcher.query("select pg_cancel_backend(?)", db.driver.process_id)
      wait_until(what: "the end of the query") { asleep.zero? }
    end
  end

  # With the binding to the certificate that the server wants to see, and a cancel that goes the same way.
  def test_tls_without_asking
    options = tls(sslnegotiation: "direct", channel_binding: :require)
    if @version >= DIRECT_TLS
      connected(**options) do |db|
        assert_equal "postgresql", db.driver.stream.tls.alpn_protocol
        assert_equal "SCRAM-SHA-256-PLUS", login_of(db).instance_variable_get(:@scram).mechanism
        assert db.query_value("select ssl from pg_stat_ssl where pid = pg_backend_pid()")
      end
      assert_stopped(**options)
    else
      error = assert_raises(OpenSSL::SSL::SSLError, DB::ConnectionLost) { connected(**options) { flunk } }
      assert_match(/before PostgreSQL 17.*sslnegotiation/, error.message)
    end
  end

  # The fault is the certificate: nothing is said of the server's version.
  def test_a_certificate_that_nobody_trusts
    error = assert_raises(OpenSSL::SSL::SSLError, DB::ConnectionLost) do
      connected(sslmode: "verify-full", sslnegotiation: "direct") { flunk }
    end
    assert_equal @version < DIRECT_TLS, error.message.include?("before PostgreSQL 17"), error.message
  end

  def test_the_protocol_that_tls_is_for
    agreed = ("postgresql" if @version >= DIRECT_TLS)
    connected(**tls) { |db| assert_equal agreed.inspect, db.driver.stream.tls.alpn_protocol.inspect }
  end

  def test_infinite_intervals
    ask = "select ?::interval, interval '-infinity'"
    if @version >= INFINITE_INTERVALS
      assert_equal [Float::INFINITY, -Float::INFINITY], @watcher.query_row(ask, "infinity")
    else
      assert_match(/infinity/, assert_raises(DB::ServerError) { @watcher.query_row(ask, "infinity") }.message)
    end
  end
end
