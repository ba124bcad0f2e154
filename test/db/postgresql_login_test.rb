# frozen_string_literal: true

require "test_helper"
require "heddle/db/postgresql"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/scripted_postgresql"

runs_on also: %i[newer_servers]

# Ways to log in: on a real server where it has them, else on a scripted one. The proofs that are expected come from
# RFC 7677 and from Python's hashlib.
class PostgreSQLLoginTest < Minitest::Test
  include StreamHelpers
  include OwnPostgreSQLHelpers

  hard_deadline 60

  DB = Heddle::DB
  Script = ScriptedPostgreSQL
  SCRAM = DB::PostgreSQL.const_get(:SCRAM)

  def connected(url, **options)
    db = DB.connect(url, timeout: 20, **options)
    yield db
  ensure
    db&.close
  end

  def refused(url, *classes, **options)
    classes = [DB::LoginFailed, DB::ProtocolError, DB::ConnectionLost] if classes.empty?
    before = descriptor_count
    error = assert_raises(*classes) { DB.connect(url, timeout: 20, **options).close }
    wait_until(what: "the close of the socket") { descriptor_count <= before + 1 }
    refute_match(/heddle-test|hush/, error.full_message(highlight: false))
    error
  end

  # ---- a real server

  def test_each_way_over_tcp_and_tls
    tls = {sslmode: "verify-full", sslrootcert: postgresql.ca_file}
    %w[heddle of_md5 of_trust].product([{}, tls]) do |user, options|
      connected(postgresql.url_of(user), **options) do |db|
        assert_equal user, db.query_value("select current_user::text")
      end
    end
    connected(postgresql.url_of("of_clear"), **tls) { |db| assert db.ping }
    assert_match(/in the clear.*sslmode/, refused(postgresql.url_of("of_clear")).message)
    assert_match(/GSSAPI.*scram-sha-256|pg_hba/, refused(postgresql.url_of("of_gss")).message)
    assert_match(/pg_hba\.conf/, refused(postgresql.url_of("of_none")).message)
  end

  def test_a_wrong_or_missing_password
    %w[heddle of_md5].each do |user|
      error = refused(postgresql.url_of(user, password: "hush"), DB::LoginFailed)
      assert_match(/#{user}.*28P01.*password:/, error.message)
      assert_equal "28P01", error.cause.sql_state
      without = "postgresql://#{user}@127.0.0.1:#{postgresql.port}/postgres?passfile=/no/such"
      assert_match(/wants a password.*PGPASSWORD.*pgpass/, refused(without, DB::LoginFailed).message)
    end
    tls = {sslmode: "require"}
    assert_match(/28P01/, refused(postgresql.url_of("of_clear", password: "hush"), DB::LoginFailed, **tls).message)
  end

  # In FIPS mode OpenSSL has no MD5; here it has no digest at all.
  def test_md5_where_openssl_forbids_it
    Dir.mktmpdir do |folder|
      path = File.join(folder, "openssl.cnf")
      File.write(path, "openssl_conf=init\n[init]\nproviders=all\n[all]\nbase=base\n[base]\nactivate=1\n")
      loads = system({"OPENSSL_CONF" => path}, RbConfig.ruby, "-ropenssl", "-e", "", err: File::NULL)
      skip "this Ruby's openssl does not load without digests" unless loads

      outcome = in_child("require 'heddle/db'; Heddle::DB.connect(ENV.fetch('URL')).close",
        env: {"OPENSSL_CONF" => path, "URL" => postgresql.url_of("of_md5")}, gems: true)
      assert_match(/by MD5, which this machine's OpenSSL forbids: set scram-sha-256 .*LoginFailed/, outcome.err)
    end
  end

  def test_a_missing_database_or_user
    assert_match(/3D000.*create the database/, refused("#{postgresql.url}_no").message)
    assert_match(/28P01/, refused(postgresql.url_of("nobody")).message)
  end

  def test_the_connection_limit
    postgresql.sql("create role limited login password 'heddle-test' connection limit 1")
    connected(postgresql.url_of("limited")) do |_|
      error = refused(postgresql.url_of("limited"), DB::LoginFailed)
      assert_match(/53300.*max_connections.*pgbouncer/, error.message)
    end
  ensure
    postgresql.sql("drop role if exists limited")
  end

  def test_a_server_that_starts_up_or_stops
    {"57P03" => /the database system is starting up \(57P03\): try again in a moment/, "57P01" => /57P01/}
      .each do |state, pattern|
        serving(Script.error(state, "the database system is starting up")) do |server|
          error = refused(server.url, DB::LoginFailed)
          assert_match pattern, error.message
          assert_includes error.message, "127.0.0.1:#{server.port}"
          assert_equal state, error.cause.sql_state
        end
      end
  end

  # The server refuses a binding to another certificate than its own.
  def test_channel_binding
    tls = {sslmode: "verify-full", sslrootcert: postgresql.ca_file}
    %i[prefer require disable].each do |binding|
      connected(postgresql.url, **tls, channel_binding: binding) do |db|
        scram = db.driver.instance_variable_get(:@login).instance_variable_get(:@scram)
        assert_equal((binding == :disable) ? "SCRAM-SHA-256" : "SCRAM-SHA-256-PLUS", scram.mechanism)
      end
    end
    assert_match(/channel binding/, refused(postgresql.url, DB::LoginFailed, channel_binding: :require).message)
    %w[of_md5 of_clear of_trust].each do |user|
      error = refused(postgresql.url_of(user), DB::LoginFailed, **tls, channel_binding: :require)
      assert_match(/channel binding/, error.message, user)
    end
  end

  def test_channel_binding_detects_another_certificate
    between = tls_proxy(postgresql)
    options = {sslmode: "require", timeout: 20}
    error = assert_raises(DB::LoginFailed) do
      DB.connect("postgresql://heddle:heddle-test@127.0.0.1:#{between.port}/postgres", **options)
    end
    assert_match(/channel binding|SCRAM/, error.message)
  ensure
    between&.close
  end

  # Ends TLS with a certificate of its own, and speaks TLS to the server.
  def tls_proxy(server)
    Script.new do |peer|
      peer.start
      peer.raw("S")
      peer.start_tls(Certificates.context(Certificates.stranger))
      socket = TCPSocket.new(server.host, server.port)
      socket.write([8, Script::TLS_REQUEST].pack("NN"))
      socket.read(1)
      context = OpenSSL::SSL::SSLContext.new
      behind = OpenSSL::SSL::SSLSocket.new(socket, context).connect
      forth = Thread.new { IO.copy_stream(peer.socket, behind) rescue nil } # standard:disable Style/RescueModifier
      begin
        loop { peer.raw(behind.readpartial(4096)) }
      ensure
        forth.kill
        behind.close
      end
    end
  end

  def test_require_auth
    {"scram-sha-256" => %w[scram-sha-256 scram-sha-256,md5 !md5 !password,!none],
     "md5" => %w[md5 md5,password !scram-sha-256]}.each do |way, fine|
      url = (way == "md5") ? postgresql.url_of("of_md5") : postgresql.url
      fine.each { |allowed| connected(url, require_auth: allowed) { |db| assert db.ping } }
      assert_match(/#{way}.*require_auth/, refused(url, DB::LoginFailed, require_auth: "!#{way}").message)
      assert_match(/#{way}.*require_auth/, refused(url, DB::LoginFailed, require_auth: "none").message)
    end
    assert_match(/none.*require_auth/,
      refused(postgresql.url_of("of_trust"), DB::LoginFailed, require_auth: "scram-sha-256").message)
    connected(postgresql.url_of("of_trust"), require_auth: "none") { |db| assert db.ping }
  end

  def test_passwords_beyond_ascii
    passwords = ["p\u00e4ssw\u00f6rd \u20ac", "\u00a0no\u00adbreak\u2163", "'quoted\\", "x" * 300]
    passwords.each do |password|
      literal = password.gsub("'", "''")
      postgresql.sql("drop role if exists spoken", "create role spoken login password '#{literal}'")
      db = DB.connect("postgresql://spoken@127.0.0.1:#{postgresql.port}/postgres", password: password, timeout: 20)
      assert db.ping
      db.close
    end
  ensure
    postgresql.sql("drop role if exists spoken")
  end

  # ---- SCRAM alone

  # RFC 7677, 3.
  def test_the_example_exchange_of_rfc_7677
    scram = SCRAM.new("pencil", nonce: "rOprNGfwEbeRWgbNEkqO", user: "user")
    assert_equal "n,,n=user,r=rOprNGfwEbeRWgbNEkqO", scram.first
    final = scram.final("r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert_equal "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0," \
      "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", final
    assert_nil scram.verify("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert_raises(SCRAM::Refused) { scram.verify("v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") }
  end

  CHALLENGES = {
    "" => /malformed/, "r=" => /malformed/, "r=NONCEx,s=AAAA" => /malformed/, "r=NONCEx,s=AAAA,i=0" => /malformed/,
    "r=NONCEx,s=AAAA,i=-1" => /malformed/, "r=NONCEx,s=AAAA,i=x" => /malformed/, "r=NONCEx,s=!!,i=1" => /malformed/,
    "m=x,r=NONCEx,s=AAAA,i=1" => /malformed/, "r=NONCE,s=AAAA,i=1" => /another challenge/,
    "r=other,s=AAAA,i=1" => /another challenge/, "r=NONCEx,s=AAAA,i=1000001" => /1000001 rounds/,
    "r=NONCEx,s=AAAA,i=9999999999" => /9999999999 rounds/, ",,,=,,\xff" => /malformed/n
  }.freeze

  def test_malformed_challenges
    CHALLENGES.each do |challenge, pattern|
      scram = SCRAM.new("hush", nonce: "NONCE")
      scram.first
      error = assert_raises(SCRAM::Refused, challenge) { scram.final(challenge.b) }
      assert_match pattern, error.message.b
    end
    scram = SCRAM.new("hush", nonce: "NONCE")
    scram.first
    assert_raises(SCRAM::Refused) { scram.verify("v=AAAA") }
    scram.final("r=NONCEx,s=AAAA,i=1")
    ["", "v=", "v=!", "v=AAAA", "e=invalid-proof", "\xff"].each do |proof|
      assert_raises(SCRAM::Refused, proof) { scram.verify(proof.b) }
    end
    assert_raises(SCRAM::Refused) { scram.final("r=NONCEx,s=AAAA,i=1") }
  end

  # ---- hostile servers

  def ask(number, rest = "") = Script.message("R", [number].pack("N") + rest)

  # A script of messages; what the client says to each is read and passed over.
  def serving(*messages, &block)
    play = proc do |peer|
      peer.startup
      messages.each { |message| peer.raw(message) }
      peer.socket.read
    end
    Script.play(play, &block)
  end

  SASL = "SCRAM-SHA-256\0\0"

  def test_malformed_logins
    final = "v=#{["x" * 32].pack("m0")}"
    {
      [ask(99)] => /way 99/, [ask(7)] => /GSSAPI.*scram/, [ask(9)] => /SSPI/, [ask(2)] => /Kerberos/,
      [Script.message("R")] => /"R"/, [Script.message("R", "ab")] => /"R"/,
      [ask(5)] => /"R"/, [ask(5, "abc")] => /"R"/, [ask(5, "abcde")] => /"R"/,
      [ask(5, "salt"), ask(5, "salt")] => /after it had another/, [ask(10, SASL), ask(10, SASL)] => /after it had/,
      [ask(10, SASL), ask(5, "salt")] => /after it had another/, [ask(11, "r=x")] => /nobody asked/,
      [ask(12, final)] => /nobody asked/, [ask(10, "X\0\0")] => /one of X/, [ask(10)] => /one of/,
      [ask(10, "\e[2J\0\0")] => /\\x1B\[2J/, [ask(10, SASL), ask(12, final)] => /does not prove/,
      [ask(10, SASL), ask(0)] => /without proving/, [ask(10, SASL), ask(11, "junk")] => /malformed/,
      [Script.message("T")] => /"T".*log-in/, [Script.ready] => /"Z"/, [Script.setting("a", "b")] => /"S"/,
      [ask(0), Script.message("D")] => /"D"/, [ask(0), Script.message("S")] => /"S"/,
      [ask(0), Script.message("S", "a")] => /"S"/, [ask(0), Script.message("S", "a\0b")] => /"S"/,
      [ask(0), Script.message("S", "a\0b\0c\0")] => /"S"/, [ask(0), Script.message("K", "abc")] => /"K"/,
      [ask(0), ask(0)] => /"R"/, ["HTTP/1.1 400 Bad Request\r\n\r\n"] => /no PostgreSQL/,
      [Script.error("XX000", "\e[2Jgone\a", D: "x")] => /\\x1B\[2Jgone\\x07/
    }.each do |messages, pattern|
      serving(*messages) { |server| assert_match pattern, refused(server.url).message, messages.inspect }
    end
  end

  def test_messages_without_end
    setting = Script.setting("a", "b")
    endless = {Script.message("N", "C00000\0Mhi\0\0") => "", ask(0) + setting => setting}
    endless.each do |first, again|
      again = first if again.empty?
      play = proc do |peer|
        peer.startup
        peer.raw(first)
        loop { peer.raw(again * 50) }
      end
      Script.play(play) { |server| refused(server.url, DB::ProtocolError, DB::ConnectionLost, DB::LoginFailed) }
    end
  end

  def test_a_length_of_a_gigabyte
    play = proc do |peer|
      peer.startup
      peer.raw("R" + [1 << 30].pack("N") + "abcd")
      peer.socket.close_write
      peer.socket.read
    end
    Script.play(play) { |server| refused(server.url) }
  end

  # The whole log-in, cut after each byte; and byte by byte.
  def test_a_scripted_login_cut_off_at_each_byte
    text = Script.welcome({"server_version" => "15.0", "in_hot_standby" => "off"})
    count = 0
    play = proc do |peer|
      peer.startup
      peer.raw(text.byteslice(0, count))
    end
    Script.play(play) do |server|
      (0...text.bytesize).each do |length|
        count = length
        error = assert_raises(DB::ConnectionLost, length) { DB.connect(server.url, timeout: 20) }
        assert_match(/127\.0\.0\.1:#{server.port} was lost while logging in/, error.message)
      end
    end
  end

  # A real server's whole log-in by SCRAM, and by TLS with channel binding, stopped after some of its bytes.
  class Relay
    attr_reader :port, :passed

    # @yieldreturn [(Integer, Symbol)] how many bytes of the server are passed on, and what comes then
    def initialize(server)
      @listener = TCPServer.new("127.0.0.1", 0)
      @port = @listener.addr[1]
      @threads = []
      @acceptor = Thread.new do
        loop do
          client = @listener.accept
          @threads << Thread.new { relay(client, TCPSocket.new(server.host, server.port), *yield) }
        end
      rescue IOError
        nil
      end
    end

    def close
      @listener.close
      @acceptor.kill.join
      @threads.each(&:kill).each(&:join)
    end

    private

    def relay(client, server, left, ending)
      forth = Thread.new { copy(client, server) }
      passed = 0
      while (bytes = server.readpartial([left - passed, 1 << 16].min)) && (passed += bytes.bytesize)
        client.write(bytes)
        @passed = passed
        break if passed == left
      end
      sleep if ending == :stall
      client.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii")) if ending == :reset
    rescue IOError, SystemCallError
      nil
    ensure
      forth&.kill&.join
      [client, server].each(&:close)
    end

    def copy(from, to)
      loop { to.write(from.readpartial(4096)) }
    rescue IOError, SystemCallError
      nil
    end
  end

  def test_a_login_to_a_real_server_cut_off_at_any_byte
    tls = {sslmode: "verify-full", sslrootcert: postgresql.ca_file, channel_binding: "require"}
    {{} => 11, tls => 67}.each do |options, stride|
      stop = [1 << 40, :close]
      relay = Relay.new(postgresql) { stop }
      url = postgresql.url.sub(/:\d+\//, ":#{relay.port}/")
      all = DB.connect(url, connect_timeout: 20, **options).then do |connection|
        relay.passed - 16 # a signature may be shorter the next time
      ensure
        connection.close # whose last bytes do not count
      end
      (1 + rand(stride)...all).step(stride) do |count|
        %i[close reset].each do |ending|
          stop = [count, ending]
          error = assert_raises(DB::ConnectionLost, OpenSSL::SSL::SSLError, SystemCallError, "#{ending} at #{count}") do
            DB.connect(url, connect_timeout: 20, **options)
          end
          assert_kind_of DB::Error, error
        end
      end
      # Which of these numbers a connection gets does not matter.
      Heddle::FiberPool.new(40).map((1..40).map { |n| n * all / 41 }) do |count|
        stop = [count, :stall]
        assert_raises(DB::ConnectTimeout) { DB.connect(url, connect_timeout: 0.3, **options) }
      end
    ensure
      relay&.close
    end
  end

  def test_a_login_whose_answer_arrives_byte_by_byte
    play = proc do |peer|
      peer.startup
      Script.welcome.each_char { |byte| peer.raw(byte) }
      peer.request
      peer.raw(Script.row("1") + Script.ready)
      peer.read
    end
    Script.play(play) { |server| connected(server.url) { |db| assert_equal "15.0", db.driver.version } }
    slow = proc do |peer|
      peer.startup
      loop { peer.raw(Script.message("N", "C00000\0\0")) && sleep(0.02) }
    end
    Script.play(slow) do |server|
      error = assert_raises(DB::ConnectTimeout) { DB.connect(server.url, connect_timeout: 0.3) }
      assert_match(/log-in/, error.message)
    end
  end

  # ---- versions of the protocol

  V3_0 = 3 << 16
  V3_2 = V3_0 | 2

  def test_a_server_that_speaks_an_older_version
    play = proc do |peer|
      assert_equal V3_2, peer.startup[:version]
      peer.raw(Script.message("v", [V3_0, 0].pack("NN")) + Script.welcome)
      peer.read
    end
    Script.play(play) { |server| connected(server.url) { |db| assert_equal 7, db.driver.process_id } }
  end

  def test_a_pooler_that_does_not_know_how_to_refuse_a_version
    answers = ["", Script.error("08P01", "unsupported protocol"), Script.error("0A000", "unsupported protocol 3.2")]
    answers.each do |answer|
      versions = Thread::Queue.new
      play = proc do |peer|
        versions << (version = peer.startup[:version])
        if version == V3_0
          peer.raw(Script.welcome)
          peer.read
        else
          peer.raw(answer)
        end
      end
      Script.play(play) do |server|
        pool = DB::Pool.new(server.url, timeout: 20, size: 2)
        pool.with { |_| pool.with { |db| assert_equal 7, db.driver.process_id } }
        pool.close
        assert_equal [V3_2, V3_0, V3_0], Array.new(versions.size) { versions.pop }, "the pool remembers what it found"
      end
    end
  end

  # A server that hangs up on everything is asked twice, and no more.
  def test_a_server_that_hangs_up
    Script.play(proc { |peer| peer.startup }) do |server|
      assert_match(/lost while logging in/, refused(server.url, DB::ConnectionLost).message)
      assert_equal 2, server.accepted
    end
    Script.play(proc { |peer| peer.startup && peer.raw(Script.error("28P01", "no")) }) do |server|
      refused(server.url, DB::LoginFailed)
      assert_equal 1, server.accepted
    end
  end

  # Protocol 3.2: a key for cancels of up to 256 bytes.
  def test_a_long_key
    key = (0..255).map(&:chr).join.b
    cancels = Thread::Queue.new
    play = proc do |peer|
      code, rest = peer.start
      if code == Script::CANCEL_REQUEST
        cancels << rest
      else
        peer.raw(Script.welcome(process: 99, secret: key))
        peer.request
        peer.socket.read
      end
    end
    Script.play(play) do |server|
      db = DB.connect(server.url, timeout: 20)
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { db.query("select 1") } }
      assert_equal [99].pack("N") + key, cancels.pop
    end
  end
end
