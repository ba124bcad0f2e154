# frozen_string_literal: true

require "test_helper"
require "uri"
require "support/mariadb_server"
require "support/scripted_mysql"

# What can fail before a connection exists: every failure is a Heddle::DB::Error, says what to do, and shows no
# secret.
class MySQLConnectingTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  hard_deadline 60

  DB = Heddle::DB

  def with_server(play)
    server = ScriptedMySQL.new(&play)
    yield server
  ensure
    server&.close
    raise server.errors.pop until server.errors.empty?
  end

  def refused_port
    TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
  end

  def failure(*classes, url, **options)
    assert_raises(*classes) { DB.connect(url, timeout: 10, **options) }
  end

  # ---- no server

  def test_a_server_that_is_down
    port = refused_port
    error = failure(Errno::ECONNREFUSED, "mysql://me:hush@127.0.0.1:#{port}/base")
    assert_kind_of DB::Error, error
    assert_kind_of Heddle::Error, error
    assert_includes error.message, "127.0.0.1:#{port}"
    refute_includes error.full_message, "hush"
    assert_equal error.message, Marshal.load(Marshal.dump(error)).message
    error = failure(Errno::ENOENT, "mysql://localhost?socket=/no/such.sock")
    assert_kind_of DB::Error, error
    assert_includes error.message, "/no/such.sock"
  end

  def test_a_name_that_does_not_exist
    error = failure(SocketError, "mysql://me:hush@heddle.invalid/base")
    assert_kind_of DB::Error, error
    assert_includes error.message, "heddle.invalid"
    refute_includes error.full_message, "hush"
  end

  def test_a_server_with_an_untrusted_certificate
    error = failure(OpenSSL::SSL::SSLError, mariadb.url, tls: true)
    assert_kind_of DB::Error, error
    assert_includes error.message, "127.0.0.1"
  end

  def test_a_timeout_names_the_server_and_what_it_waited_for
    with_server(proc { |_| sleep }) do |server|
      error = assert_raises(DB::ConnectTimeout) { DB.connect(server.url, connect_timeout: 0.2) }
      assert_kind_of Heddle::DeadlineExceeded, error
      assert_kind_of DB::Error, error
      assert_match(/127\.0\.0\.1:#{server.port}.*0\.2 s.*greeting/, error.message)
    end
    silent = proc do |peer|
      peer.greet
      peer.response
      sleep
    end
    with_server(silent) do |server|
      error = assert_raises(DB::ConnectTimeout) { DB.connect("#{server.url}?connect_timeout=0.2") }
      assert_match(/127\.0\.0\.1:#{server.port}.*log-in/, error.message)
      error = assert_raises(DB::ConnectTimeout) { DB.connect("#{server.url}?timeout=0.2&tls=yes") }
      assert_match(/127\.0\.0\.1:#{server.port}.*TLS/, error.message)
      # A deadline around the connect is the caller's own.
      error = assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { DB.connect(server.url, timeout: 10) } }
      refute_kind_of DB::ConnectTimeout, error
    end
  end

  # ---- URLs

  def test_a_password_that_is_not_percent_encoded
    ["a/b", "a#b", "12/3", "1#2", "1?2", "a?b", "1/2#3", "a@b/c"].each do |password|
      error = failure(ArgumentError, "mysql://me:#{password}@127.0.0.1/base")
      assert_match(/%2F.*%23/, error.message, password)
      refute_includes error.full_message(highlight: false), ":#{password}", password
    end
  end

  def test_a_password_that_is_not_encoded_for_memcached
    ["a/b", "a#b", "12/3", "1#2", "1?2", "a@b/c"].each do |password|
      error = assert_raises(ArgumentError) { Heddle::Memcached.new("memcached://me:#{password}@127.0.0.1:11211") }
      assert_match(/%2F.*%23/, error.message, password)
      refute_includes error.full_message(highlight: false), ":#{password}", password
    end
    error = assert_raises(ArgumentError) { Heddle::Memcached.new(["memcached://me:hush@127.0.0.1:11211", nil]) }
    refute_includes error.message, "hush"
  end

  def test_invalid_urls
    [nil, 7, :mysql, [], "", "127.0.0.1", {host: "x"}].each do |url|
      error = failure(ArgumentError, url)
      assert_includes error.message, "mysql://user:password@host/base", url.inspect
    end
    assert_match(/oracle/, failure(ArgumentError, "oracle://x").message)
  end

  def test_booleans_of_urls
    %w[false 0 no off].each do |no|
      db = DB.connect("#{mariadb.url}?tls=#{no}&booleans=#{no}&clear_password=#{no}", timeout: 10)
      refute_predicate db.driver.stream, :tls?
      db.exec("create temporary table t (yes tinyint(1))")
      db.exec("insert into t values (1)")
      assert_equal 1, db.query_value("select yes from t")
      db.close
    end
    %w[true 1 yes on].each { |yes| failure(OpenSSL::SSL::SSLError, "#{mariadb.url}?tls=#{yes}") }
    %i[tls booleans clear_password].each do |name|
      assert_match(/#{name}/, failure(ArgumentError, "#{mariadb.url}?#{name}=maybe").message)
      assert_match(/#{name}/, failure(ArgumentError, mariadb.url, name => "maybe").message)
    end
  end

  def test_every_option_works_in_a_url
    options = {timeout: 9, connect_timeout: 8, statement_cache: "always", statement_cache_size: 2, time_zone: "utc",
               charset: "latin1", booleans: true}
    url = "#{mariadb.url}?#{URI.encode_www_form(options)}"
    db = DB.connect(url)
    3.times { |n| db.query("select #{n}") }
    assert_equal 2, db.cached_statements
    assert_equal "latin1", db.query_value("select @@character_set_client")
    db.close
    assert_match(/hue.*timeout/m, failure(ArgumentError, "#{mariadb.url}?hue=red").message)
    assert_match(/hue.*timeout/m, failure(ArgumentError, mariadb.url, hue: "red").message)
  end

  def test_invalid_values_of_options
    {timeout: [-1, 0, "soon", Float::NAN, []], connect_timeout: [0, "x", -0.5], port: [0, 70_000, "x"],
     host: [7, "a b", []], socket: [7],
     user: [7], password: [7, []], database: [7], tls: [7, "x"], time_zone: [7, :mars, nil], charset: [nil, "sjis", 7],
     statement_cache: [7, "sometimes"],
     statement_cache_size: [0, "x", 1.5], server_public_key: [7, "no key", :tell]}.each do |name, values|
      values.each do |value|
        error = assert_raises(ArgumentError, "#{name}: #{value.inspect}") { DB.connect(mariadb.url, name => value) }
        assert_includes error.message, "#{name}:", "#{name}: #{value.inspect}"
      end
    end
    error = assert_raises(ArgumentError) { DB.connect(mariadb.url, password: ["hush"]) }
    refute_includes error.full_message, "hush"
  end

  def test_unknown_options
    {{timout: 2} => /unknown options: timout; did you mean timeout: for timout:\?; the options are timeout,/,
     {size: 3} => /size: is a keyword of Heddle::DB::Pool\.new/, {xyzzy: 1} => /options: xyzzy; the options are/}
      .each do |options, message|
        assert_match(message, assert_raises(ArgumentError) { DB.connect(mariadb.url, **options) }.message)
      end
    error = assert_raises(ArgumentError) { DB::Pool.new(mariadb.url, sise: 3) }
    assert_match(/did you mean size:/, error.message)
    %i[pool pool_size max_connections].each do |name|
      error = assert_raises(ArgumentError) { DB::Pool.new(mariadb.url, name => 3) }
      assert_match(/the size of a pool is size:.*Heddle::DB::Pool\.new also size, checkout_timeout/, error.message)
    end
    error = assert_raises(ArgumentError) { DB::Pool.new("#{mariadb.url}?size=3") }
    assert_match(/size: is a keyword of Heddle::DB::Pool\.new/, error.message)
  end

  def test_without_an_address_or_with_a_wrong_one_the_error_shows_one_of_each_kind
    [nil, 7, "shop.db", "", "127.0.0.1/shop"].each do |address|
      error = assert_raises(ArgumentError) { DB.connect(address) }
      assert_match(%r{mysql://.*postgresql://.*sqlite:relative/path.*odbc:DSN=}, error.message, address.inspect)
    end
  end

  def test_options_of_tls
    {{hue: 1} => /hue/, {ca_file: "/no/such"} => /ca_file.*\/no\/such/, {ca_path: "/no/such"} => /ca_path.*\/no\/such/,
     {ca_file: "/"} => /ca_file/,
     {cert: "x"} => /cert:/, {key: "x"} => /key:/}.each do |options, pattern|
      assert_match(pattern, failure(ArgumentError, mariadb.url, tls: options).message)
    end
    db = DB.connect(mariadb.url, timeout: 10, tls: {"ca_file" => mariadb.ca_file, "hostname" => "localhost"})
    assert_predicate db.driver.stream, :tls?
    db.close
  end

  # ---- secrets

  # Every object that can be reached from a connection, by its inspect, and in a NoMethodError.
  def test_nothing_shows_a_password
    url = mariadb.url
    secret = url[/:([^:@\/]+)@/, 1]
    pool = DB::Pool.new(url, timeout: 10)
    db = pool.with { |connection| connection }
    key = OpenSSL::PKey::RSA.new(2048)
    with_secrets = DB.connect(url,
      timeout: 10, tls: {verify: false, hostname: "x-hidden-x"}, server_public_key: key.public_to_pem)
    cache = Heddle::Memcached.const_get(:Address).all(["memcached://me:#{secret}@127.0.0.1:1"]).first
    [pool, db, db.driver, db.driver.stream, with_secrets, with_secrets.driver, cache].each do |object|
      texts = [object.inspect, object.to_s, assert_raises(NoMethodError) { object.no_such_method }.full_message]
      texts.each { |text| refute_match(/#{secret}|x-hidden-x/, text, object.class.name) }
    end
    assert_match(/\A#<Heddle::DB::MySQL::Driver MariaDB at 127\.0\.0\.1:#{mariadb.port}>\z/, db.driver.inspect)
  ensure
    pool&.close
    with_secrets&.close
  end

  def test_a_login_shows_no_password
    DB.connect(mariadb.url, timeout: 10).close # loads it
    login = DB::MySQL.const_get(:Login)
    texts = []
    trace = TracePoint.new(:return) { |point| texts << point.self.inspect if point.self.instance_of?(login) }
    trace.enable { DB.connect(mariadb.url, timeout: 10).close }
    refute_empty texts
    texts.each { |text| refute_includes text, "heddle-test" }
  end

  # ---- keys and scrambles

  # Where OpenSSL asks the terminal, it reads the answer from there, not from us.
  def test_an_encrypted_key_never_prompts_for_its_password
    pem = OpenSSL::PKey::RSA.new(2048).to_pem(OpenSSL::Cipher.new("aes-128-cbc"), "hush")
    certificate, = Certificates.server
    in_child_without_terminal do
      error = failure(ArgumentError, mariadb.url, tls: {verify: false, cert: certificate.to_pem, key: pem})
      assert_match(/key_password/, error.message)
      refute_includes error.message, "PRIVATE"
      error = failure(ArgumentError, mariadb.url,
        tls: {verify: false, cert: certificate.to_pem, key: pem, key_password: "wrong"})
      assert_match(/key_password/, error.message)
      assert_match(/server_public_key/, failure(ArgumentError, mariadb.url, server_public_key: pem).message)
    end
    certificate, key = Certificates.server
    locked = key.to_pem(OpenSSL::Cipher.new("aes-128-cbc"), "hush")
    db = DB.connect(mariadb.url,
      timeout: 10, tls: {verify: false, cert: certificate.to_pem, key: locked, key_password: "hush"})
    assert_predicate db.driver.stream, :tls?
    db.close
  end

  def test_a_scramble_that_is_too_short
    ["", "\0", "short\0"].each do |scramble|
      %w[caching_sha2_password mysql_native_password].each do |plugin|
        play = proc do |peer|
          peer.greet
          peer.write(peer.response[:sequence] + 1, "\xfe".b + "#{plugin}\0" + scramble)
          sequence, = peer.read
          peer.write(sequence + 1, "\x01\x04")
          sequence, = peer.read
          peer.write(sequence + 1, "\x01" + OpenSSL::PKey::RSA.new(2048).public_to_pem)
          peer.read
        end
        with_server(play) do |server|
          error = failure(DB::LoginFailed, server.url, server_public_key: :ask)
          assert_match(/scramble/, error.message)
        end
      end
    end
  end

  # ---- answers of a hostile server

  ESCAPES = "\e[2J\e]0;owned\a\r\x7f\u009b31m line\nnext\ttab é"
  HARMLESS = "\\x1B[2J\\x1B]0;owned\\x07\\x0D\\x7F\\x9B31m line\nnext\ttab é"

  def test_escape_sequences_do_not_reach_a_terminal
    with_server(proc { |peer| peer.error(0, 1040, "\e[2J\a", ESCAPES) }) do |server|
      error = failure(DB::LoginFailed, server.url)
      assert_includes error.message, HARMLESS
    end
    play = proc do |peer|
      peer.greet
      peer.write(peer.response[:sequence] + 1, "\xfe".b + "\e[2Jplugin\0abc")
      peer.read
    end
    with_server(play) { |server| refute_match(/\e/, failure(DB::LoginFailed, server.url).message) }
    play = proc do |peer|
      peer.welcome(version: "8.0\e[2J")
      peer.request
      peer.error(1, 1064, "\e[2J\a", ESCAPES)
      peer.read
    end
    with_server(play) do |server|
      db = DB.connect(server.url, timeout: 10)
      refute_includes db.driver.version, "\e"
      error = assert_raises(DB::ServerError) { db.query("select 1") }
      assert_equal HARMLESS, error.message
      refute_includes error.sql_state, "\e"
      assert_predicate error.sql_state, :valid_encoding?
      db.close
    end
  end

  # MariaDB takes a prepare and its execution together, and answers only the first.
  MARIADB = {version: "10.11.4-MariaDB", capabilities: ScriptedMySQL::CAPABILITIES & ~1}.freeze

  # Errors after which a server closes the connection itself.
  def test_an_error_that_ends_the_connection
    [1053, 1078, 1153, 1156, 1159, 1160, 1927, 3169, 4031].product([{}, MARIADB]) do |code, options|
      play = proc do |peer|
        peer.welcome(**options)
        peer.request
        peer.request unless options.empty?
        peer.error(1, code, "08S01", "that is all")
      end
      with_server(play) do |server|
        db = DB.connect(server.url, timeout: 10)
        error = assert_raises(DB::ConnectionLost) { db.query("select 1") }
        assert_match(/that is all.*#{code}.*closed/m, error.message)
        assert_equal [DB::ServerError, code], [error.cause.class, error.cause.code]
        assert_predicate db, :closed?
        assert_match(/closed/, assert_raises(DB::ConnectionLost) { db.query("select 1") }.message)
      end
    end
  end

  # MySQL says why it ends a connection that asks for nothing: the number of that packet is 0, as of any that begins an
  # exchange.
  def test_an_error_that_no_request_has_caused
    ways = {
      query: ->(db) { db.query("select 1") }, pipeline: ->(db) { db.pipeline { |p| 3.times { p.query("select 1") } } },
      pipeline_of_several: ->(db) { db.pipeline { |p| 3.times { |n| p.query("select #{n}") } } },
      ping: ->(db) { db.ping }, transaction: ->(db) { db.transaction { flunk } },
      cursor: ->(db) { db.each_row("select 1") { flunk } }, prepare: ->(db) { db.prepare("select 1") }
    }
    ways.values.product([4031, 3169, 7]) do |way, code|
      ended = Thread::Queue.new
      play = proc do |peer|
        peer.welcome
        peer.error(0, code, "HY000", "for you were idle")
        peer.socket.close_write
        ended << true
        loop { peer.request }
      end
      with_server(play) do |server|
        db = DB.connect(server.url, timeout: 10)
        ended.pop
        wait_until { !db.healthy? }
        error = assert_raises(DB::ConnectionLost) { way.call(db) }
        assert_equal [DB::ServerError, code], [error.cause.class, error.cause.code]
        assert_predicate db, :closed?
      end
    end
  end

  # OpenSSL tells of such an end by an error of its own.
  def test_a_connection_that_ends_over_tls
    [->(&block) { block.call }, ->(&block) { Heddle.run(&block) }].each do |host|
      host.call do
        db, killer = Array.new(2) { DB.connect(mariadb.url, timeout: 10, tls: {ca_file: mariadb.ca_file}) }
        killer.exec("kill #{db.driver.thread}")
        wait_until { !db.healthy? }
        error = assert_raises(DB::ConnectionLost) { db.query("select 1") }
        assert_kind_of DB::Error, error
        assert_raises(DB::ConnectionLost) { db.query("select 1") }
        db.close
        other = DB.connect(mariadb.url, timeout: 10, tls: {ca_file: mariadb.ca_file})
        killer.exec("kill #{other.driver.thread}")
        wait_until { !other.healthy? }
        assert_nil other.close
        killer.close
      end
    end
  end

  private

  # A prompt of OpenSSL's goes to /dev/tty, or to standard input where there is none.
  def in_child_without_terminal
    text, status = IO.pipe.then do |reader, writer|
      mariadb
      pid = fork do
        reader.close
        Process.setsid
        $stdin.reopen(File::NULL)
        $stderr.reopen(writer)
        yield
        exit!(0)
      rescue Exception => error # rubocop:disable Lint/RescueException
        writer.write(error.full_message)
        exit!(1)
      end
      writer.close
      [reader.read, Process.wait2(pid).last]
    end
    assert_predicate status, :success?, text
    refute_match(/pass phrase/i, text)
  end
end
