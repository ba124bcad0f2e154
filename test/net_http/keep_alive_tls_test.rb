# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "tmpdir"
require "support/certificates"
require "support/keeping_server"
require "support/loop_helpers"
require "heddle/net_http"
require "heddle"

runs_on rubies: :ends

# Persistent connections over TLS: which settings they must share, sessions that are resumed, and how they end.
class KeepAliveTLSTest < Minitest::Test
  include LoopHelpers

  mode :thread

  OK = KeepingServer::OK

  def setup
    Heddle::NetHTTP.enable
    Heddle::NetHTTP.keep_alive
    @before = Heddle::NetHTTP.stats
    @server = KeepingServer.new(context: context)
    @store = store { |one| one.add_file(Certificates.authority_file) }
  end

  def teardown
    Heddle::NetHTTP.keep_alive(false)
    Heddle::NetHTTP.enable
    @server.close
  end

  def test_sessions_share
    3.times { get }
    Thread.new { get }.join
    Heddle.run { get }
    assert_equal [1] * 5, @server.connections
  end

  def test_without_the_acceleration
    Heddle::NetHTTP.disable
    3.times { get }
    assert_equal [1] * 3, @server.connections
  end

  def test_the_peer_s_certificate
    get
    session.start do |http|
      assert_equal Certificates.server.first.to_der, http.peer_cert.to_der
      http.get("/")
    end
    assert_equal [1, 1], @server.connections
  end

  # Each kind shares with itself only.
  def test_settings_that_make_connections_different
    other = store { |one| one.add_cert(Certificates.authority.first) }
    certificate, key = Certificates.client("me")
    callback = ->(verified, _) { verified }
    folder = Dir.mktmpdir("heddle-authorities")
    sets = {
      plain: {}, callback: {verify_callback: callback}, no_check: {verify_mode: OpenSSL::SSL::VERIFY_NONE},
      depth: {verify_depth: 3}, store: {cert_store: other},
      file: {cert_store: nil, ca_file: Certificates.authority_file},
      folder: {ca_path: folder}, certificate: {cert: certificate, key: key}, ciphers: {ciphers: "DEFAULT:!SHA1"},
      oldest: {min_version: :TLS1_2}, newest: {max_version: :TLS1_2}, lifetime: {ssl_timeout: 100},
      version: {ssl_version: :TLSv1_2}, other_key: {cert: certificate, key: key.dup},
      chain: {cert: certificate, key: key, extra_chain_cert: [Certificates.authority.first]}
    }
    sets[:host_unchecked] = {verify_hostname: false} if Net::HTTP.method_defined?(:verify_hostname=)
    assert_empty Net::HTTP::SSL_ATTRIBUTES - sets.values.flat_map(&:keys), "a setting of this version is not compared"
    numbers = sets.map do |name, set|
      2.times { get(**set) }
      @server.connections.last(2).tap { |pair| assert_equal 1, pair.uniq.size, name }
    end
    assert_equal sets.size, numbers.uniq.size
  ensure
    FileUtils.rm_rf(folder) if folder
  end

  def test_a_file_of_authorities_that_is_written
    file = File.join(Dir.mktmpdir("heddle-authorities"), "all.pem")
    File.write(file, File.read(Certificates.authority_file))
    2.times { get(cert_store: nil, ca_file: file) }
    File.write(file, "\n", mode: "a")
    2.times { get(cert_store: nil, ca_file: file) }
    File.write(file, "")
    assert_raises(OpenSSL::SSL::SSLError) { get(cert_store: nil, ca_file: file) }
    assert_equal [1, 1, 2, 2], @server.connections
  ensure
    FileUtils.rm_rf(File.dirname(file)) if file
  end

  # A second later at most.
  def test_a_file_in_a_folder_of_authorities_that_is_written
    folder = Dir.mktmpdir("heddle-authorities")
    file = File.join(folder, "authority.pem")
    File.write(file, "one")
    2.times { get(ca_path: folder) }
    File.write(file, "two")
    wait_until do
      get(ca_path: folder)
      @server.connections.last == 2
    end
    assert_equal [1, 1], @server.connections.first(2)
  ensure
    FileUtils.rm_rf(folder) if folder
  end

  def test_a_store_that_changes
    2.times { get }
    @store.add_cert(Certificates.stranger.first)
    2.times { get }
    assert_equal [1, 1, 2, 2], @server.connections
  end

  # open-uri, rest-client and Faraday make a store for each connection.
  def test_stores_that_were_told_the_same
    folder = Dir.mktmpdir("heddle-authorities")
    kinds = {
      file: ->(store) { store.add_file(Certificates.authority_file) },
      certificate: ->(store) { store.add_cert(Certificates.authority.first) },
      both: ->(store) { store.add_cert(Certificates.authority.first) && store.add_file(Certificates.authority_file) },
      folder: ->(store) { store.add_cert(Certificates.authority.first) && store.add_path(folder) },
      system: ->(store) { store.add_cert(Certificates.authority.first) && store.set_default_paths }
    }
    numbers = kinds.map do |name, tell|
      3.times { get(cert_store: store(&tell)) }
      @server.connections.last(3).tap { |some| assert_equal 1, some.uniq.size, name }
    end
    assert_equal kinds.size, numbers.uniq.size
  ensure
    FileUtils.rm_rf(folder) if folder
  end

  def test_stores_that_were_told_of_a_file_that_was_written
    file = Tempfile.new("authorities")
    tell = ->(store) { store.add_file(file.path) }
    file.write(File.read(Certificates.authority_file)) && file.flush
    old = store(&tell)
    2.times { get(cert_store: old) }
    file.write("\n") && file.flush
    2.times { get(cert_store: store(&tell)) }
    get(cert_store: old)
    assert_equal [1, 1, 2, 2, 1], @server.connections
  end

  # What cannot be compared.
  def test_stores_that_were_told_something_else
    callback = ->(verified, _) { verified }
    {
      flags: ->(store) { store.flags = OpenSSL::X509::V_FLAG_PARTIAL_CHAIN },
      time: ->(store) { store.time = Time.now }, purpose: ->(store) { store.purpose = OpenSSL::X509::PURPOSE_ANY },
      callback: ->(store) { store.verify_callback = callback }
    }.each do |name, tell|
      same = store { |one| one.add_file(Certificates.authority_file) && tell.call(one) }
      other = store { |one| one.add_file(Certificates.authority_file) && tell.call(one) }
      [same, same, other].each { |one| get(cert_store: one) }
      first, second, third = @server.connections.last(3)
      assert_equal first, second, name
      refute_equal second, third, name
    end
  end

  def test_a_file_that_cannot_be_read_makes_a_store_different
    tell = lambda do |store|
      store.add_file(Certificates.authority_file)
      assert_raises(OpenSSL::X509::StoreError) { store.add_file("/nowhere") }
    end
    2.times { get(cert_store: store(&tell)) }
    assert_equal [1, 2], @server.connections
  end

  def test_the_store_of_all_connections_is_replaced
    answers = assert_child(<<~RUBY)
      require "heddle/net_http"
      Heddle::NetHTTP.keep_alive
      trusting = OpenSSL::X509::Store.new.tap { |store| store.add_file(#{Certificates.authority_file.inspect}) }
      2.times do
        [trusting, OpenSSL::X509::Store.new].each do |store|
          OpenSSL::SSL::SSLContext.send(:remove_const, :DEFAULT_CERT_STORE)
          OpenSSL::SSL::SSLContext.const_set(:DEFAULT_CERT_STORE, store)
          puts Net::HTTP.start("127.0.0.1", #{@server.port}, use_ssl: true) { |http| http.get("/").code }
        rescue OpenSSL::SSL::SSLError => error
          puts error.class
        end
      end
      puts Heddle::NetHTTP.stats[:reused]
    RUBY
    assert_equal %w[200 OpenSSL::SSL::SSLError 200 OpenSSL::SSL::SSLError 1], answers.split
  end

  # As ssrf_filter before 1.2 does, which carrierwave uses.
  {
    prepended_check: "OpenSSL::SSL::SSLSocket.prepend(Module.new { def post_connection_check(name) = super })",
    replaced_check: "class OpenSSL::SSL::SSLSocket; def post_connection_check(_) = true; end",
    context: "OpenSSL::SSL::SSLContext.prepend(Module.new { def set_params(*) = super })",
    function: "module OpenSSL::SSL; def self.verify_certificate_identity(*) = true; end",
    store: "OpenSSL::X509::Store.prepend(Module.new { def add_file(path) = super })",
    new: "class OpenSSL::SSL::SSLSocket; def self.new(*) = super; end"
  }.each do |name, patch|
    %w[before after].each do |moment|
      define_method("test_nothing_is_kept_with_another_verification_by_#{name}_from_#{moment}") do
        output = assert_child(<<~RUBY)
          require "net/http"
          require "openssl"
          #{patch if moment == "before"}
          require "heddle/net_http"
          Heddle::NetHTTP.keep_alive
          settings = {use_ssl: true, ca_file: #{Certificates.authority_file.inspect}}
          get = ->(_) { Net::HTTP.start("localhost", #{@server.port}, settings) { |http| http.get("/") } }
          #{"2.times(&get)\n#{patch}" if moment == "after"}
          2.times(&get)
          puts Heddle::NetHTTP.stats[:reused]
        RUBY
        assert_equal (moment == "before") ? "0\n" : "1\n", output
      end
    end
  end

  def test_the_store_of_the_system_that_changes
    set = {cert_store: nil, verify_mode: OpenSSL::SSL::VERIFY_NONE}
    2.times { get(**set) }
    OpenSSL::SSL::SSLContext::DEFAULT_CERT_STORE.add_cert(Certificates.stranger.first)
    2.times { get(**set) }
    assert_equal [1, 1, 2, 2], @server.connections
  end

  def test_parameters_of_all_connections_that_change_in_place
    parameters = OpenSSL::SSL::SSLContext::DEFAULT_PARAMS
    skip "this openssl freezes them" if parameters.frozen?
    parameters[:ciphers] = +"DEFAULT"
    2.times { get }
    parameters[:ciphers] << ":!SHA1"
    2.times { get }
    assert_equal [1, 1, 2, 2], @server.connections
  ensure
    parameters.delete(:ciphers) unless parameters.frozen?
  end

  # What is known of a folder's files.
  def test_many_folders_of_authorities
    Dir.mktmpdir("heddle-authorities") do |top|
      folders = Array.new(40) { |i| File.join(top, i.to_s).tap { |folder| Dir.mkdir(folder) } }
      folders.each { |folder| get(ca_path: folder) }
      known = Heddle.const_get(:FileStamp).instance_variable_get(:@folders)
      assert_operator known.size, :<=, 20
    end
  end

  def test_another_name_for_the_same_address
    get
    [["127.0.0.1", nil], ["localhost", "127.0.0.1"]].each do |name, address|
      http = configure(Net::HTTP.new(name, @server.port, nil))
      http.ipaddr = address
      http.start { http.get("/") }
    end
    assert_equal [1, 2, 3], @server.connections
  end

  def test_not_kept_with_unread_bytes
    server = KeepingServer.new(context: context) { "#{OK}x" }
    2.times { configure(Net::HTTP.new("localhost", server.port, nil)).start { |http| http.get("/") } }
    assert_equal [1, 2], server.connections
  ensure
    server&.close
  end

  # The beginning of what is left over has come, and waits inside of OpenSSL.
  def test_not_kept_with_a_partial_record
    held = false
    server = KeepingServer.new(context: context) { (held = true) && [OK, "left over" * 100] }
    with_server(->(client) { relay(client, server.port) { held } }) do |port|
      configure(Net::HTTP.new("localhost", port, nil)).tap { |http| http.ipaddr = "127.0.0.1" }
        .start { |http| http.get("/") }
    end
    assert_equal [1, 0], [server.requests.size, Heddle::NetHTTP.stats[:idle]]
  ensure
    server&.close
  end

  # The server says close_notify, or nothing.
  def test_a_server_that_closes
    [:close, :reset].each do |way|
      server = KeepingServer.new(context: context) { [OK, 0.02, way] }
      2.times do
        configure(Net::HTTP.new("localhost", server.port, nil)).start { |http| http.get("/") }
        wait_until { server.open.zero? }
      end
      assert_equal [1, 2], server.connections
    ensure
      server&.close
    end
  end

  def test_a_get_that_meets_a_close
    server = KeepingServer.new(context: context) { |request| (request.number == 1) ? OK : nil }
    request = -> { configure(Net::HTTP.new("localhost", server.port, nil)).tap { |http| http.max_retries = 0 } }
    request.call.start { |http| http.get("/") }
    assert_equal "ok", request.call.start { |http| http.get("/again").body }
    assert_raises(EOFError, OpenSSL::SSL::SSLError, SystemCallError) do
      request.call.start { |http| http.post("/", "a") }
    end
    assert_equal [1, 1, 2, 2], server.connections
  ensure
    server&.close
  end

  # --- sessions of TLS

  def test_new_connections_resume
    [:TLS1_2, :TLS1_3].each do |version|
      before = Heddle::NetHTTP.stats[:resumed]
      sessions = Array.new(2) { session(max_version: version).start }
      sessions.each { |http| http.get("/") }
      sessions.each(&:finish)
      Array.new(4) { session(max_version: version).start }.each { |http| http.get("/") && http.finish }
      assert_operator Heddle::NetHTTP.stats[:resumed] - before, :>=, 1, version
    end
  end

  # OpenSSL itself does not resume a session whose connection ended without close_notify.
  def test_a_ticket_of_tls_1_3_serves_once
    server = KeepingServer.new(context: context) { |request| (request.path == "/last") ? [OK, :close] : OK }
    make = -> { configure(Net::HTTP.new("localhost", server.port, nil)) }
    make.call.start { |http| http.get("/last") }
    wait_until { server.open.zero? }
    sessions = Array.new(3) { make.call.start }
    reused = sessions.map { |http| http.instance_variable_get(:@socket).io.session_reused? }
    assert_equal [true, false, false], reused, "one ticket was left"
    sessions.each(&:finish)
  ensure
    server&.close
  end

  # OpenSSL gives a ticket to the object that made the connection, whoever has it by then.
  def test_a_ticket_that_comes_late_is_not_used_with_other_settings
    maker = session(verify_mode: OpenSSL::SSL::VERIFY_NONE)
    maker.start { |http| http.get("/") }
    context = maker.instance_variable_get(:@ssl_context)
    connections = Array.new(2) { session(verify_mode: OpenSSL::SSL::VERIFY_NONE).start }
    connections.each { |http| http.get("/") }
    late = connections.last.instance_variable_get(:@socket).io.session
    context.session_new_cb.call(nil, late)
    before = Heddle::NetHTTP.stats[:resumed]
    maker.verify_mode = OpenSSL::SSL::VERIFY_PEER
    maker.start { |http| http.get("/") }
    assert_equal before, Heddle::NetHTTP.stats[:resumed]
    connections.each(&:finish)
  end

  # The object's own TLS session is older than the connection, which came from another object.
  def test_a_session_of_another_connection_is_not_used
    checked = {verify_mode: OpenSSL::SSL::VERIFY_PEER}
    http = session(verify_mode: OpenSSL::SSL::VERIFY_NONE)
    http.keep_alive = false
    http.start { http.get("/") }
    get(**checked)
    http.keep_alive = true
    http.verify_mode = OpenSSL::SSL::VERIFY_PEER
    http.start { http.get("/") }
    before = Heddle::NetHTTP.stats[:resumed]
    others = Array.new(3) { session(**checked).start }
    assert_operator Heddle::NetHTTP.stats[:resumed] - before, :<=, 1, "with the ticket of the first checked connection"
    others.each(&:finish)
  end

  def test_a_child_of_fork_has_as_many_tickets
    reader, writer = IO.pipe
    Process.wait(fork do
      depths = [3, 4, 5]
      depths.each { |depth| get(verify_depth: depth) }
      before = Heddle::NetHTTP.stats[:resumed]
      depths.flat_map { |depth| Array.new(2) { session(verify_depth: depth).start } }
      writer.write(Heddle::NetHTTP.stats[:resumed] - before)
      exit!(0)
    end)
    writer.close
    assert_equal "3", reader.read
  ensure
    reader&.close
  end

  def test_other_settings_do_not_resume
    get
    @server.drop
    before = Heddle::NetHTTP.stats[:resumed]
    get(verify_callback: ->(verified, _) { verified })
    get(verify_mode: OpenSSL::SSL::VERIFY_NONE)
    assert_equal before, Heddle::NetHTTP.stats[:resumed]
  end

  def test_clear_forgets_tickets
    get
    Heddle::NetHTTP.keep_alive_clear
    get
    assert_equal @before[:resumed], Heddle::NetHTTP.stats[:resumed]
    assert_equal [1, 2], @server.connections
  end

  def test_a_stranger_s_certificate_is_still_refused
    get
    server = KeepingServer.new(context: Certificates.context(Certificates.stranger), port: 0)
    2.times do
      assert_raises(OpenSSL::SSL::SSLError) do
        configure(Net::HTTP.new("localhost", server.port, nil)).start { |http| http.get("/") }
      end
    end
  ensure
    server&.close
  end

  # --- ends

  def test_close_notify_at_exit_but_not_from_a_child
    out = assert_child(<<~RUBY)
      require "heddle/net_http"
      Heddle::NetHTTP.keep_alive
      get = lambda do
        http = Net::HTTP.new("localhost", #{@server.port}, nil)
        http.use_ssl = true
        http.verify_mode = OpenSSL::SSL::VERIFY_NONE
        http.start { http.get("/") }
      end
      get.call
      Process.wait(fork { })
      get.call # the child has not told the server anything
      p Heddle::NetHTTP.stats.values_at(:opened, :reused)
    RUBY
    assert_equal "[1, 1]\n", out
    wait_until { @server.endings.any? }
    assert_equal [[:eof], [1, 1]], [@server.endings, @server.connections]
  end

  private

  def context
    Certificates.context.tap { |context| context.session_cache_mode = OpenSSL::SSL::SSLContext::SESSION_CACHE_SERVER }
  end

  # Copies bytes between a client and a server. Once the block says so, the last ten bytes for the client do not come.
  def relay(client, port)
    server = TCPSocket.new("127.0.0.1", port)
    up = Thread.new { IO.copy_stream(client, server) }
    up.report_on_exception = false
    answer = +""
    loop do
      if server.wait_readable(0.05)
        answer << server.readpartial(9999)
      elsif yield && answer.size > 500
        client.write(answer.byteslice(0...-10))
        break wait_until { !up.alive? }
      end
      client.write(answer.slice!(0..)) unless yield
    end
  ensure
    up&.kill
    server&.close
  end

  def store(&tell) = OpenSSL::X509::Store.new.tap(&tell)

  def configure(http, **settings)
    http.use_ssl = true
    {cert_store: @store, **settings}.each { |name, value| http.public_send(:"#{name}=", value) }
    http
  end

  def session(**settings) = configure(Net::HTTP.new("localhost", @server.port, nil), **settings)

  def get(**settings) = session(**settings).start { |http| http.get("/") }
end
