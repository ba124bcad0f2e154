# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/scripted_postgresql"
require "uri"

# Which server is reached, and how: TLS in each mode, several hosts, kinds of servers, sockets, limits of time.
class PostgreSQLConnectingTest < Minitest::Test
  include StreamHelpers
  include OwnPostgreSQLHelpers

  hard_deadline 60

  DB = Heddle::DB
  Script = ScriptedPostgreSQL

  def connected(url = postgresql.url, **options)
    db = DB.connect(url, timeout: 20, **options)
    yield db
  ensure
    db&.close
  end

  def failure(*classes, url, **options)
    assert_raises(*classes) { DB.connect(url, timeout: 20, **options).close }
  end

  def tls?(db) = db.query_value("select ssl from pg_stat_ssl where pid = pg_backend_pid()")

  def port_of(db) = db.driver.stream.to_io.remote_address.ip_port

  def refused_port
    TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
  end

  # ---- TLS

  def test_each_mode_of_tls
    {disable: false, allow: false, prefer: true, require: true}.each do |mode, tls|
      connected(sslmode: mode) do |db|
        assert_equal [tls, tls], [tls?(db), db.driver.stream.tls?], mode
      end
    end
    %w[verify-ca verify-full].each do |mode|
      connected(sslmode: mode, sslrootcert: postgresql.ca_file) { |db| assert tls?(db), mode }
      failure(OpenSSL::SSL::SSLError, postgresql.url, sslmode: mode)
    end
    connected { |db| refute tls?(db) }
    connected(sslrootcert: postgresql.ca_file) { |db| assert tls?(db), "who names an authority wants it used" }
    connected(tls: {ca_file: postgresql.ca_file}) { |db| assert tls?(db) }
    failure(OpenSSL::SSL::SSLError, postgresql.url, tls: true)
  end

  # A certificate of the same authority for another name.
  def test_the_name_of_the_certificate
    with_tls_server(Certificates.stranger) do |server|
      %i[require verify-ca].each do |mode|
        connected(server.url, sslmode: mode, sslrootcert: Certificates.authority_file) do |db|
          assert_predicate db.driver.stream, :tls?
        end
      end
      error = failure(OpenSSL::SSL::SSLError, server.url, sslmode: :"verify-full",
        sslrootcert: Certificates.authority_file)
      assert_includes error.message, "127.0.0.1:#{server.port}"
      connected("postgresql://me@elsewhere.test:#{server.port}/b?hostaddr=127.0.0.1", sslmode: "verify-full",
        sslrootcert: Certificates.authority_file) { |db| assert_predicate db.driver.stream, :tls? }
    end
  end

  # An authority that is named is used by require, too, as libpq does.
  def test_require_checks_a_configured_authority
    other = Tempfile.new("other").tap { |file| file.write(Certificates.client("x").first.to_pem) && file.flush }
    failure(OpenSSL::SSL::SSLError, postgresql.url, sslmode: :require, sslrootcert: other.path)
    connected(sslmode: :require) { |db| assert tls?(db) }
  end

  def with_tls_server(pair, &block)
    play = proc do |peer|
      assert_equal Script::TLS_REQUEST, peer.start.first
      peer.raw("S")
      peer.start_tls(Certificates.context(pair))
      peer.welcome
      peer.read
    end
    Script.play(play, &block)
  end

  def test_client_certificates
    certificate, key = Certificates.client("of_cert")
    files = {sslcert: certificate.to_pem, sslkey: key.to_pem}.transform_values do |text|
      Tempfile.new("own").tap { |file| file.write(text) && file.flush }
    end
    paths = files.transform_values(&:path)
    url = postgresql.url_of("of_cert", sslmode: "verify-full", sslrootcert: postgresql.ca_file)
    connected(url, **paths) { |db| assert_equal "of_cert", db.query_value("select current_user::text") }
    connected(url, **paths) { |db| cancelled_without(db, files.values) }
    assert_match(/pg_hba|certificate/, failure(DB::Error, url).message)
    error = failure(ArgumentError, url, sslcert: "/no/such", sslkey: "/x")
    assert_match(/sslcert: or sslkey:.*no.such/m, error.message)
  end

  # A program may give up its rights, or its files, once it is connected.
  def cancelled_without(db, files)
    files.each(&:unlink)
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { db.query("select pg_sleep(30)") } }
    connected(postgresql.url) do |watcher|
      sleeping = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and usename = 'of_cert'"
      wait_until(what: "the end of the query") { watcher.query_value(sleeping).zero? }
    end
  end

  # libpq's prefer and allow: the other way is tried when the server's rules refuse the first.
  def test_prefer_and_allow_fall_back
    connected(postgresql.url_of("of_plain"), sslmode: :prefer) { |db| refute tls?(db) }
    connected(postgresql.url_of("of_tls"), sslmode: :allow) { |db| assert tls?(db) }
    assert_match(/pg_hba/, failure(DB::LoginFailed, postgresql.url_of("of_plain"), sslmode: :require).message)
    assert_match(/sslmode/, failure(DB::LoginFailed, postgresql.url_of("of_tls"), sslmode: :disable).message)
  end

  def test_prefer_with_a_server_without_tls
    logins = 0
    play = proc do |peer|
      logins += 1
      peer.welcome
      peer.read
    end
    Script.play(play) do |server|
      connected(server.url, sslmode: :prefer) { |db| refute_predicate db.driver.stream, :tls? }
      connected(server.url, sslmode: :allow) { |db| refute_predicate db.driver.stream, :tls? }
      assert_match(/has no TLS.*require/, failure(DB::LoginFailed, server.url, sslmode: :require).message)
      assert_match(/has no TLS, which tls: asks for/, failure(DB::LoginFailed, server.url, tls: true).message)
    end
  end

  def test_a_missing_role
    play = proc do |peer|
      peer.startup
      peer.raw(Script.error("28000", 'role "nobody" does not exist'))
      peer.read
    end
    Script.play(play) do |server|
      error = failure(DB::LoginFailed, server.url)
      assert_match(/28000.*create the role, or name another one \(user:\)/, error.message)
      refute_match(/pg_hba/, error.message)
    end
  end

  # A wrong password is wrong without TLS, too, and must not be shown there.
  def test_prefer_does_not_send_a_wrong_password_again_in_the_clear
    starts = Thread::Queue.new
    play = proc do |peer|
      starts << peer.start.first
      peer.raw("S")
      peer.start_tls(Certificates.context)
      peer.startup
      peer.raw(Script.error("28P01", "password authentication failed"))
      peer.read
    end
    Script.play(play) do |server|
      failure(DB::LoginFailed, server.url, sslmode: :prefer)
      assert_equal [1, Script::TLS_REQUEST], [starts.size, starts.pop]
    end
  end

  def test_bytes_in_clear_text_behind_the_answer_to_a_request_for_tls
    play = proc do |peer|
      peer.start
      peer.raw("S" + Script.error("00000", "trust me"))
      peer.socket.read
    end
    Script.play(play) do |server|
      assert_match(/clear text/, failure(DB::ConnectionLost, server.url, sslmode: :require).message)
    end
  end

  def test_answers_to_a_request_for_tls
    {"E" => DB::ConnectionLost, "X" => DB::ProtocolError, "\0" => DB::ProtocolError}.each do |answer, expected|
      play = proc do |peer|
        peer.start
        peer.raw(answer)
        peer.socket.read
      end
      Script.play(play) { |server| failure(expected, server.url, sslmode: :require) }
    end
  end

  def test_tls_without_asking
    play = proc do |peer|
      context = Certificates.context
      context.alpn_select_cb = ->(protocols) { protocols.find { |name| name == "postgresql" } }
      peer.start_tls(context)
      peer.welcome
      peer.read
    end
    Script.play(play) do |server|
      options = {sslmode: "verify-full", sslrootcert: Certificates.authority_file, sslnegotiation: "direct"}
      connected(server.url, **options) do |db|
        assert_equal "postgresql", db.driver.stream.tls.alpn_protocol
      end
    end
  end

  # A port of another protocol, whose certificate is for the same name.
  def test_tls_without_asking_and_without_agreeing_on_a_protocol
    contexts = [nil, "h2"].map do |protocol|
      Certificates.context.tap { |context| context.alpn_select_cb = ->(_) { protocol } if protocol }
    end
    contexts.each do |context|
      play = proc do |peer|
        peer.start_tls(context)
        peer.welcome
      end
      Script.play(play) do |server|
        failure(DB::ProtocolError, OpenSSL::SSL::SSLError, server.url, sslmode: "require", sslnegotiation: "direct")
      end
    end
  end

  def test_direct_tls_needs_tls
    assert_match(/sslnegotiation.*verify-full/,
      failure(ArgumentError, postgresql.url, sslnegotiation: :direct, sslmode: :prefer).message)
  end

  def test_public_authorities_need_the_name
    %w[require verify-ca prefer].each do |mode|
      assert_match(/sslrootcert.*verify-full/,
        failure(ArgumentError, postgresql.url, sslrootcert: "system", sslmode: mode).message)
    end
    failure(OpenSSL::SSL::SSLError, postgresql.url, sslrootcert: "system")
  end

  # ---- where

  def test_a_unix_socket_by_its_folder_and_by_its_path
    folder = postgresql.socket_dir
    [["postgresql://heddle@#{URI.encode_www_form_component(folder)}:#{postgresql.port}/postgres", {}],
      ["postgresql:///postgres?host=#{folder}&port=#{postgresql.port}&user=heddle", {}],
      ["host=#{folder} port=#{postgresql.port} user=heddle dbname=postgres", {}],
      ["postgresql://heddle@/postgres", {socket: "#{folder}/.s.PGSQL.#{postgresql.port}"}],
      ["postgresql://heddle@/postgres", {host: folder, port: postgresql.port, sslmode: "require"}]].each do |url, more|
      connected(url, **more) do |db|
        assert_nil db.query_value("select inet_client_addr()"), url
      end
    end
  end

  def test_several_hosts
    dead = refused_port
    both = "127.0.0.1:#{dead},127.0.0.1:#{postgresql.port}"
    connected("postgresql://heddle:heddle-test@#{both}/postgres") { |db| assert db.ping }
    pairs = "host=127.0.0.1,localhost port=#{dead},#{postgresql.port} user=heddle password=heddle-test dbname=postgres"
    connected(pairs) { |db| assert db.ping }
    connected("postgresql://heddle:heddle-test@/postgres", host: %w[127.0.0.1 127.0.0.1],
      port: [dead, postgresql.port]) { |db| assert db.ping }
    error = failure(Errno::ECONNREFUSED, "postgresql://me:hush@127.0.0.1:#{dead},127.0.0.1:#{dead}/postgres")
    assert_kind_of DB::Error, error
    assert_match(/none of 2 servers.*127\.0\.0\.1:#{dead}.*127\.0\.0\.1:#{dead}/m, error.message)
    refute_includes error.full_message, "hush"
    assert_match(/2 ports for 3 hosts/, failure(ArgumentError, "host=a,b,c port=1,2").message)
  end

  # A wrong password ends the search; a server that is starting, ending or full does not.
  def test_refusals_after_which_the_next_host_is_tried
    {"57P03" => true, "53300" => true, "57P01" => true, "28P01" => false, "3D000" => false,
     "28000" => false}.each do |state, goes_on|
      play = proc do |peer|
        peer.startup
        peer.raw(Script.error(state, "not you"))
      end
      Script.play(play) do |server|
        url = "postgresql://heddle:heddle-test@127.0.0.1:#{server.port},127.0.0.1:#{postgresql.port}/postgres"
        if goes_on
          connected(url) { |db| assert db.ping }
        else
          assert_match(/not you/, failure(DB::LoginFailed, url).message)
        end
      end
    end
  end

  def test_random_order
    ports = Thread::Queue.new
    play = proc do |peer|
      ports << peer.socket.addr[1]
      peer.welcome
      peer.read
    end
    Script.play(play) do |one|
      Script.play(play) do |other|
        url = "postgresql://me@127.0.0.1:#{one.port},127.0.0.1:#{other.port}/base"
        3.times { assert_equal one.port, connected(url) { |db| port_of(db) } }
        seen = Array.new(64) { connected(url, load_balance_hosts: "random") { |db| port_of(db) } }
        assert_equal [one.port, other.port].sort, seen.uniq.sort
      end
    end
  end

  # ---- kinds of servers

  PRIMARY = {"in_hot_standby" => "off", "default_transaction_read_only" => "off"}.freeze
  STANDBY = {"in_hot_standby" => "on", "default_transaction_read_only" => "off"}.freeze
  READER = {"in_hot_standby" => "off", "default_transaction_read_only" => "on"}.freeze

  # A server of that kind, which says so by itself or when it is asked.
  def with_kind(kind, asked: false)
    play = proc do |peer|
      peer.welcome(asked ? {} : kind)
      while asked
        request = peer.request.last
        answer = if request.last.include?("pg_is_in_recovery")
          (kind["in_hot_standby"] == "on") ? "t" : "f"
        else
          kind.value?("on") ? "on" : "off"
        end
        peer.raw(Script.row(answer) + Script.ready)
      end
      peer.read
    end
    Script.play(play) { |server| yield server.port }
  end

  def reached(ports, target)
    url = "postgresql://me@#{ports.map { |port| "127.0.0.1:#{port}" }.join(",")}/base"
    connected(url, target_session_attrs: target) { |db| ports.index(port_of(db)) }
  end

  def test_the_kind_of_server
    [false, true].each do |asked|
      with_kind(STANDBY, asked: asked) do |standby|
        with_kind(READER, asked: asked) do |reader|
          with_kind(PRIMARY, asked: asked) do |primary|
            ports = [standby, reader, primary]
            {any: 0, "read-write": 2, "read-only": 0, primary: 1, standby: 0, "prefer-standby": 0}.each do |kind, index|
              assert_equal index, reached(ports, kind), kind
            end
            assert_equal 1, reached([primary, standby], "prefer-standby")
            assert_equal 0, reached([primary, reader], "prefer-standby")
            assert_equal 0, reached([primary, standby], "read_write")
            error = failure(DB::LoginFailed, "postgresql://me@127.0.0.1:#{primary},127.0.0.1:#{reader}/base",
              target_session_attrs: "standby")
            assert_match(/none of 2 servers.*:#{primary}.*standby.*:#{reader}.*standby/m, error.message)
            assert_match(/target_session_attrs: read-only/,
              failure(DB::LoginFailed, "postgresql://me@127.0.0.1:#{primary}/base",
                target_session_attrs: "read-only").message)
          end
        end
      end
    end
  end

  def test_the_kind_of_a_real_server
    %i[any read-write primary prefer-standby].each do |target|
      connected(target_session_attrs: target) { |db| assert db.ping }
    end
    %i[standby read-only].each do |target|
      failure(DB::LoginFailed, postgresql.url, target_session_attrs: target)
    end
    connected(target_session_attrs: "read-only", parameters: {default_transaction_read_only: "on"}) do |db|
      assert db.ping
    end
    assert_match(/target_session_attrs:.*standby/,
      failure(ArgumentError, postgresql.url, target_session_attrs: "master").message)
  end

  def test_a_real_standby_beside_its_primary
    standby = StandbyPostgreSQL.new(hot: true).start
    url = lambda do |*servers|
      postgresql.url.sub(/@[^\/]+/, "@" + servers.map { |server| "127.0.0.1:#{server.port}" }.join(","))
    end
    {primary: postgresql, "read-write": postgresql, any: standby, standby: standby, "read-only": standby,
     "prefer-standby": standby}.each do |kind, server|
      connected(url[standby, postgresql], target_session_attrs: kind) do |db|
        assert_equal server.port, port_of(db), kind
      end
    end
    connected(url[postgresql, standby], target_session_attrs: "prefer-standby") do |db|
      assert_equal standby.port, port_of(db)
      assert_raises(DB::ReadOnly) { db.exec("create table t (n int)") }
    end
    assert_match(/no server that writes/,
      failure(DB::LoginFailed, standby.url, target_session_attrs: "read-write").message)
  ensure
    standby&.stop
  end

  def test_a_real_server_that_is_starting
    cold = StandbyPostgreSQL.new(hot: false).start
    error = failure(DB::LoginFailed, cold.url)
    assert_equal "57P03", error.cause.sql_state
    assert_match(/\(57P03\): try again in a moment/, error.message)
    url = postgresql.url.sub("@", "@127.0.0.1:#{cold.port},")
    %w[any prefer-standby read-write].each do |kind|
      connected(url, target_session_attrs: kind) { |db| assert_equal postgresql.port, port_of(db), kind }
    end
  ensure
    cold&.stop
  end

  # ---- time

  def test_a_silent_host_leaves_time_for_the_next
    Script.play(proc { |peer| peer.socket.read }) do |silent|
      url = "postgresql://heddle:heddle-test@127.0.0.1:#{silent.port},127.0.0.1:#{postgresql.port}/postgres"
      connected(url, connect_timeout: 4) { |db| assert db.ping }
      error = assert_raises(DB::ConnectTimeout) do
        DB.connect("postgresql://me:hush@127.0.0.1:#{silent.port},127.0.0.1:#{silent.port}/b", connect_timeout: 0.4)
      end
      assert_match(/none of 2 servers.*share.*log-in/m, error.message)
    end
  end

  def test_a_timeout_names_the_server_and_what_it_waited_for
    Script.play(proc { |peer| peer.socket.read }) do |server|
      {{} => /log-in/, {sslmode: :require} => /TLS/}.each do |options, step|
        error = assert_raises(DB::ConnectTimeout) { DB.connect(server.url, connect_timeout: 0.2, **options) }
        # What was left of it when this server's turn came: on a busy machine some milliseconds less.
        assert_match(/127\.0\.0\.1:#{server.port} in 0\.(?:2|1\d+) s.*connect_timeout.*#{step}/, error.message)
      end
      error = assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { DB.connect(server.url, timeout: 10) } }
      refute_kind_of DB::ConnectTimeout, error
    end
  end

  def test_a_server_that_is_down
    port = refused_port
    error = failure(Errno::ECONNREFUSED, "postgres://me:hush@127.0.0.1:#{port}/base")
    assert_kind_of DB::Error, error
    assert_includes error.message, "127.0.0.1:#{port}"
    refute_includes error.full_message, "hush"
    assert_equal error.message, Marshal.load(Marshal.dump(error)).message
    assert_includes failure(SocketError, "postgres://me@heddle.invalid/base").message, "heddle.invalid"
    failure(SocketError, "postgres://me@heddle.invalid/base", target_session_attrs: :primary)
    assert_includes failure(Errno::ENOENT, "host=/no/such user=me").message, "/no/such/.s.PGSQL.5432"
  end

  # ---- the session

  def test_parameters_of_the_session
    options = {application_name: "mine", search_path: "pg_catalog, public", options: "-c work_mem=7MB",
               parameters: {statement_timeout: "77s", lock_timeout: 5000}}
    show = ->(db, name) { db.query_value("show #{name}") }
    names = %w[application_name search_path work_mem statement_timeout lock_timeout TimeZone]
    connected(**options) do |db|
      assert_equal ["mine", "pg_catalog, public", "7MB", "77s", "5s", "UTC"], names.map { |name| show.call(db, name) }
    end
    connected("#{postgresql.url}?application_name=of%20a%20url&options=-c%20geqo%3Doff") do |db|
      assert_equal ["of a url", "off"], [show.call(db, "application_name"), show.call(db, "geqo")]
    end
    connected(fallback_application_name: "falls") { |db| assert_equal "falls", show.call(db, "application_name") }
    connected(parameters: {IntervalStyle: "iso_8601"}) { |db| assert_equal "postgres", show.call(db, "IntervalStyle") }
    error = failure(DB::LoginFailed, postgresql.url, parameters: {no_such_thing: 1})
    assert_match(/no_such_thing.*42704/, error.message)
    assert_match(/parameters:/, failure(ArgumentError, postgresql.url, parameters: {"a b": 1}).message)
    assert_match(/parameters:/, failure(ArgumentError, postgresql.url, parameters: {a: "x\0y"}).message)
    assert_match(/client_encoding:/, failure(ArgumentError, postgresql.url, client_encoding: "LATIN1").message)
    assert_match(/gssencmode: require/, failure(ArgumentError, postgresql.url, gssencmode: "require").message)
    connected(client_encoding: "utf8", gssencmode: "prefer") { |db| assert db.ping }
  end

  def test_the_time_zone_of_this_process
    before = ENV["TZ"]
    {"Europe/Vienna" => "Europe/Vienna", ":Asia/Tokyo" => "Asia/Tokyo", "" => "UTC"}.each do |zone, expected|
      ENV["TZ"] = zone
      connected(time_zone: :local) do |db|
        assert_equal expected, db.query_value("show TimeZone")
        moment = Time.at(1_700_000_000)
        shown = db.query_value("select to_char(to_timestamp(1700000000), 'YYYY-MM-DD HH24:MI:SS')")
        assert_equal moment.strftime("%Y-%m-%d %H:%M:%S"), shown, zone
      end
      connected { |db| assert_equal "UTC", db.query_value("show TimeZone") }
    end
    ENV["TZ"] = "Mars/Olympus"
    assert_match(/TimeZone/, failure(DB::LoginFailed, postgresql.url, time_zone: :local).message)
  ensure
    ENV["TZ"] = before
  end

  # ---- secrets

  def test_nothing_shows_a_password
    pool = DB::Pool.new(postgresql.url, timeout: 20)
    db = pool.with { |connection| connection }
    driver = db.driver
    login = driver.instance_variable_get(:@login)
    server = driver.instance_variable_get(:@server)
    protocol = driver.instance_variable_get(:@protocol)
    [pool, db, driver, driver.stream, login, server, protocol].each do |object|
      texts = [object.inspect, object.to_s, assert_raises(NoMethodError) { object.no_such_method }.full_message]
      texts.each { |text| refute_includes text, "heddle-test", object.class.name }
    end
    scram = DB::PostgreSQL.const_get(:SCRAM)
    refute_includes scram.new("hush").inspect, "hush"
  ensure
    pool&.close
  end
end
