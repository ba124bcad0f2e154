# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/scripted_mysql"
require "uri"

# Login methods. Those that only MySQL has run against a scripted server: the protocol's documentation is its source,
# and Python's hashlib computed the expected proofs, not our code.
class MySQLLoginTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  hard_deadline 60

  # SHA1(password) XOR SHA1(scramble + SHA1(SHA1(password))); SHA256(password) XOR SHA256(SHA256(SHA256(password)) +
  # scramble), of "secret" and ScriptedMySQL::SCRAMBLE.
  NATIVE = "8817c50fa779daef010ee7577825b0847df9842e"
  SHA2 = "c76e2898612a4cf042c77fa8c4702c4c64c0c2c557c53c4d75595aaa6abae809"

  def with_server(play)
    server = ScriptedMySQL.new(&play)
    yield server
  ensure
    server&.close
    raise server.errors.pop until server.errors.empty?
  end

  def connect(server, **options)
    Heddle::DB.connect(server.url, timeout: 10, **options)
  end

  def serve(&block)
    block
  end

  def finish(peer, sequence)
    peer.ok(sequence)
    peer.request # the time zone
    peer.ok
    peer.request
    peer.ok(1)
  end

  def assert_logs_in(server, **options)
    db = connect(server, **options)
    assert db.ping
    assert_equal ["8.0.36", 7, :mysql], [db.driver.version, db.driver.thread, db.database_type]
  ensure
    db&.close
  end

  def assert_refused(server, pattern, **options)
    before = descriptor_count
    error = assert_raises(Heddle::DB::LoginFailed, Heddle::DB::ProtocolError, Heddle::DB::ConnectionLost) {
      connect(server, **options)
    }
    assert_match pattern, error.message
    wait_until(what: "the close of the socket") { descriptor_count <= before + 1 }
    error
  end

  # ---- MySQL 8

  def test_caching_sha2_when_the_server_knows_the_password
    play = serve do |peer|
      peer.greet(plugin: "caching_sha2_password")
      answer = peer.response
      assert_equal [["me", "base", "caching_sha2_password", 45], SHA2],
        [answer.values_at(:user, :database, :plugin, :charset), answer[:proof].unpack1("H*")]
      assert_equal 0, answer[:capabilities] & (1 << 7 | 1 << 16), "neither files of ours nor several statements at once"
      peer.write(answer[:sequence] + 1, "\x01\x03")
      finish(peer, answer[:sequence] + 2)
    end
    with_server(play) { |server| assert_logs_in(server) }
  end

  def full(key, asked:)
    serve do |peer|
      peer.greet(plugin: "caching_sha2_password")
      sequence = peer.response[:sequence]
      peer.write(sequence + 1, "\x01\x04")
      if asked
        sequence, request = peer.read
        assert_equal "\x02", request
        peer.write(sequence + 1, "\x01" + key.public_to_pem)
      end
      sequence, secret = peer.read
      mixed = key.private_decrypt(secret, OpenSSL::PKey::RSA::PKCS1_OAEP_PADDING)
      assert_equal "secret\0", mixed.bytes.zip(ScriptedMySQL::SCRAMBLE.bytes).map { |a, b| a ^ b }.pack("C*")
      finish(peer, sequence + 1)
    end
  end

  def test_caching_sha2_with_the_servers_key
    key = OpenSSL::PKey::RSA.new(2048)
    with_server(full(key, asked: true)) { |server| assert_logs_in(server, server_public_key: :ask) }
    with_server(full(key, asked: false)) { |server| assert_logs_in(server, server_public_key: key.public_to_pem) }
  end

  # An attacker in between would send his own key.
  def test_caching_sha2_accepts_no_key_by_default
    play = serve do |peer|
      peer.greet(plugin: "caching_sha2_password")
      peer.write(peer.response[:sequence] + 1, "\x01\x04")
      assert_raises(EOFError) { peer.read }
    end
    with_server(play) { |server| assert_refused(server, /server_public_key/) }
  end

  def test_caching_sha2_over_tls
    play = serve do |peer|
      peer.greet(plugin: "caching_sha2_password")
      first = peer.response
      assert first[:tls]
      start_tls(peer)
      second = peer.response
      assert_equal SHA2, second[:proof].unpack1("H*")
      peer.write(second[:sequence] + 1, "\x01\x04")
      sequence, secret = peer.read
      assert_equal "secret\0", secret
      finish(peer, sequence + 1)
    end
    with_server(play) { |server| assert_logs_in(server, tls: {ca_file: Certificates.authority_file}) }
  end

  def test_a_switch_to_another_way
    play = serve do |peer|
      peer.greet(plugin: "caching_sha2_password")
      peer.write(peer.response[:sequence] + 1, "\xfe".b + "mysql_native_password\0" + ScriptedMySQL::SCRAMBLE + "\0")
      sequence, proof = peer.read
      assert_equal NATIVE, proof.unpack1("H*")
      finish(peer, sequence + 1)
    end
    with_server(play) { |server| assert_logs_in(server) }
  end

  def test_no_password
    play = serve do |peer|
      peer.greet(plugin: "caching_sha2_password")
      answer = peer.response
      assert_equal "", answer[:proof]
      finish(peer, answer[:sequence] + 1)
    end
    with_server(play) do |server|
      db = Heddle::DB.connect("mysql://me@127.0.0.1:#{server.port}", timeout: 10)
      assert db.ping
      db.close
    end
  end

  # ---- servers that ask for too much

  def test_the_password_in_the_clear
    ask = lambda do |peer, sequence|
      peer.write(sequence + 1, "\xfe".b + "mysql_clear_password\0")
      peer.read
    end
    open = serve do |peer|
      peer.greet
      assert_raises(EOFError, Errno::ECONNRESET) { ask.call(peer, peer.response[:sequence]) }
    end
    with_server(open) { |server| assert_refused(server, /in clear text/) }
    with_server(open) { |server| assert_refused(server, /in clear text/, clear_password: true) }
    secret = serve do |peer|
      peer.greet
      assert peer.response[:tls]
      start_tls(peer)
      sequence, password = ask.call(peer, peer.response[:sequence])
      assert_equal "secret\0", password
      finish(peer, sequence + 1)
    end
    with_server(secret) do |server|
      assert_logs_in(server, tls: {ca_file: Certificates.authority_file}, clear_password: true)
    end
  end

  def test_unknown_login_methods
    {"\xfe" => /before 2004/, "\xfedialog\0abc" => /dialog/, "\x01abc" => /unknown request/,
     "\x05" => /unexpected packet/}.each do |packet, pattern|
      play = serve do |peer|
        peer.greet
        peer.write(peer.response[:sequence] + 1, packet.b)
        peer.read
      end
      with_server(play) { |server| assert_refused(server, pattern) }
    end
  end

  def test_tls_that_is_not_offered
    with_server(serve { |peer|
      peer.greet(capabilities: ScriptedMySQL::CAPABILITIES & ~(1 << 11)) && peer.read
    }) do |server|
      assert_refused(server, /does not offer TLS/, tls: true)
    end
  end

  # Bytes that came before TLS are not trusted.
  def test_bytes_sent_before_tls
    play = serve do |peer|
      peer.raw(ScriptedMySQL.packets(0, ScriptedMySQL.greeting) + ScriptedMySQL.packets(2, ScriptedMySQL.ok))
      peer.read
      start_tls(peer)
    end
    with_server(play) do |server|
      assert_refused(server, /in clear text before TLS/, tls: {ca_file: Certificates.authority_file})
    end
  end

  def test_a_server_with_an_untrusted_certificate
    play = serve do |peer|
      peer.greet
      peer.response
      start_tls(peer, Certificates.stranger)
      flunk if peer.response
    end
    with_server(play) do |server|
      assert_raises(OpenSSL::SSL::SSLError) { connect(server, tls: {ca_file: Certificates.authority_file}) }
    end
  end

  def test_malformed_greetings
    ["SSH-2.0-OpenSSH_9\r\n", "\0" * 30, "\x05\0\0\0\x0aabcd", "\x01\0\0\0\x09", "\x04\0\0\x05\x0a5.5",
      "\xff\xff\xff\0" + "x" * 100].each do |bytes|
      play = serve do |peer|
        peer.raw(bytes.b)
        peer.close
      end
      with_server(play) { |server| assert_refused(server, /127/) }
    end
    with_server(serve { |peer| peer.error(0, 1040, "08004", "Too many connections") }) do |server|
      assert_refused(server, /Too many connections \(1040\)/)
    end
  end

  # ---- the real server

  def test_a_wrong_password
    url = mariadb.url.sub(/:[^:@]+@/, ":wrong@")
    before = descriptor_count
    error = assert_raises(Heddle::DB::LoginFailed) { Heddle::DB.connect(url, timeout: 10) }
    assert_match(/heddle.*1045.*check user: and password:/, error.message)
    refute_includes error.message, "wrong"
    assert_equal before, descriptor_count
  end

  def test_a_missing_database
    error = assert_raises(Heddle::DB::LoginFailed) { Heddle::DB.connect(mariadb.url, timeout: 10, database: "nowhere") }
    assert_match(/nowhere.*1049.*create the database, or name another one \(database:\)/, error.message)
  end

  def test_certificates
    db = Heddle::DB.connect(mariadb.url, timeout: 10, tls: {ca_file: mariadb.ca_file})
    assert_predicate db.driver.stream, :tls?
    refute_empty db.query("show status like 'Ssl_cipher'")[0][1]
    db.close
    assert_raises(OpenSSL::SSL::SSLError) { Heddle::DB.connect(mariadb.url, timeout: 10, tls: true) }
  end

  def test_urls
    db = Heddle::DB.connect(
      "mysql://heddle:heddle-test@localhost/heddle?socket=#{URI.encode_www_form_component(mariadb.socket)}&timeout=10"
    )
    assert_equal "heddle", db.query_value("select database()")
    db.close
    user = "o'br%ién@x"
    admin = Heddle::DB.connect(mariadb.url, timeout: 10)
    admin.driver.command("create or replace user 'o''br%ién@x'@'%' identified by 'p@ss:w/ö rd+'")
    password = URI.encode_www_form_component("p@ss:w/ö rd+").gsub("+", "%20")
    url = "mariadb://#{URI.encode_www_form_component(user)}:#{password}@127.0.0.1:#{mariadb.port}"
    db = Heddle::DB.connect(url, timeout: 10)
    assert_nil db.query_value("select database()")
    db.close
    admin.close
    assert_raises(ArgumentError) { Heddle::DB.connect("oracle://x") }
    assert_raises(ArgumentError) { Heddle::DB.connect("127.0.0.1") }
    assert_raises(ArgumentError, URI::InvalidURIError) { Heddle::DB.connect("../errors://x") }
  end

  def test_the_time_zone_is_utc
    db = Heddle::DB.connect(mariadb.url, timeout: 10)
    assert_equal "+00:00", db.query_value("select @@time_zone")
    assert_in_delta Time.now, db.query_value("select now(6)"), 60
    db.close
    assert_raises(ArgumentError) { Heddle::DB.connect(mariadb.url, time_zone: :mars) }
  end

  def test_a_silent_server
    with_server(serve { |_| sleep }) do |server|
      assert_within(2, at_least: 0.2) do
        assert_raises(Heddle::DeadlineExceeded) { Heddle::DB.connect(server.url, connect_timeout: 0.25) }
      end
    end
  end

  private

  def start_tls(peer, pair = Certificates.server)
    peer.socket = OpenSSL::SSL::SSLSocket.new(peer.socket, Certificates.context(pair))
      .tap { |tls| tls.sync_close = true }
    peer.socket.accept
  end
end
