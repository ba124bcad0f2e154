# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "tmpdir"

# The peer's identity, the framing of its bytes, and the time of a handshake.
class StreamTLSTest < Minitest::Test
  include StreamHelpers

  # A TLS server for one connection after another; yields its port, and what the server saw of each.
  def with_tls_server(context: Certificates.context, serve: ->(peer) { peer.write("hello\n") && peer.gets })
    listener = TCPServer.new("127.0.0.1", 0)
    seen = Queue.new
    thread = Thread.new do
      loop do
        peer = OpenSSL::SSL::SSLSocket.new(listener.accept, context)
        peer.sync_close = true
        begin
          peer.accept
          seen << peer.session_reused?
          serve.call(peer)
        rescue OpenSSL::SSL::SSLError, SystemCallError, IOError => error
          seen << error
        ensure
          peer.close
        end
      end
    end
    yield listener.addr[1], seen
  ensure
    thread&.kill
    listener&.close
  end

  def authority = {ca_file: Certificates.authority_file}

  # In this process, including the server's.
  def socket_count
    Dir.children("/proc/self/fd").count do |descriptor|
      File.readlink("/proc/self/fd/#{descriptor}").start_with?("socket:")
    rescue Errno::ENOENT
      false
    end
  end

  def test_the_peer_is_verified
    with_tls_server do |port, _|
      GC.start # closes what earlier tests left
      before = socket_count
      stream = Heddle::Stream.tls("localhost", port, tls: authority, timeout: 5)
      assert_predicate stream, :tls?
      assert_equal "hello\n", stream.gets
      stream.close
      # Not the system's authorities.
      assert_raises(OpenSSL::SSL::SSLError) { Heddle::Stream.tls("localhost", port, timeout: 5) }
      wait_until(what: "the close of the refused socket") { socket_count <= before }
      stream = Heddle::Stream.tls("localhost", port, tls: {verify: false}, timeout: 5)
      assert_equal "hello\n", stream.gets
      stream.close
    end
  end

  def test_a_certificate_for_another_name_is_refused
    with_tls_server(context: Certificates.context(Certificates.stranger)) do |port, _|
      assert_raises(OpenSSL::SSL::SSLError) { Heddle::Stream.tls("localhost", port, tls: authority, timeout: 5) }
      assert_raises(OpenSSL::SSL::SSLError) { Heddle::Stream.tls("127.0.0.1", port, tls: authority, timeout: 5) }
      stream = Heddle::Stream.tls("127.0.0.1", port, tls: {**authority, hostname: "elsewhere.test"}, timeout: 5)
      assert_equal "hello\n", stream.gets
      stream.close
    end
  end

  # Only when it is asked for: OpenSSL's own context says false by itself.
  def test_a_certificate_for_any_name
    with_tls_server(context: Certificates.context(Certificates.stranger)) do |port, _|
      stream = Heddle::Stream.tls("127.0.0.1", port, tls: {**authority, verify_hostname: false}, timeout: 5)
      assert_equal "hello\n", stream.gets
      stream.close
      stream = Heddle::Stream.tls("127.0.0.1", port, tls: {"verify_hostname" => false, **authority}, timeout: 5)
      stream.close
      own = OpenSSL::SSL::SSLContext.new
      own.verify_mode = OpenSSL::SSL::VERIFY_PEER
      own.ca_file = Certificates.authority_file
      [own, {**authority, verify_hostname: true}].each do |tls|
        assert_raises(OpenSSL::SSL::SSLError) { Heddle::Stream.tls("127.0.0.1", port, tls: tls, timeout: 5) }
      end
      assert_raises(OpenSSL::SSL::SSLError) do
        Heddle::Stream.tls("127.0.0.1", port, tls: {verify_hostname: false}, timeout: 5)
      end
    end
  end

  # As programs do that renew certificates: by a rename, or in place.
  def test_a_file_of_authorities_that_is_replaced
    old = Certificates.send(:make, "/CN=Old", nil).first.to_pem
    now = Certificates.authority.first.to_pem
    Dir.mktmpdir do |dir|
      folder = File.join(dir, "folder").tap { |path| Dir.mkdir(path) }
      path = File.join(dir, "ca.pem")
      hash = File.join(folder, "#{Certificates.authority.first.subject.hash.to_s(16).rjust(8, "0")}.0")
      write = ->(text) { File.write("#{path}.new", text) && File.rename("#{path}.new", path) }
      with_tls_server do |port, _|
        say = ->(tls) { Heddle::Stream.tls("localhost", port, tls: tls, timeout: 5).tap(&:gets).close }
        [write, ->(text) { File.write(path, text) }].each do |replace|
          replace[old]
          assert_raises(OpenSSL::SSL::SSLError) { say[{ca_file: path}] }
          replace[now]
          say[{ca_file: path}]
          replace[old]
          assert_raises(OpenSSL::SSL::SSLError) { say[{ca_file: path}] }
        end
        assert_raises(OpenSSL::SSL::SSLError) { say[{ca_path: folder}] }
        File.write(hash, now)
        say[{ca_path: folder}]
      end
    end
  end

  def test_the_server_gets_the_host_name_and_resumes_the_session
    names = Queue.new
    context = Certificates.context
    context.servername_cb = proc { |_, name| (names << name) && nil }
    with_tls_server(context: context) do |port, seen|
      2.times do
        stream = Heddle::Stream.tls("localhost", port, tls: authority, timeout: 5)
        stream.gets
        stream.close
      end
      assert_equal [false, true], [seen.pop, seen.pop]
      assert_equal "localhost", names.pop
    end
  end

  def test_the_handshake_is_inside_the_connect_timeout
    listener = TCPServer.new("127.0.0.1", 0) # never answers
    before = socket_count
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        assert_within(2, at_least: 0.1) do
          assert_raises(Heddle::DeadlineExceeded) do
            Heddle::Stream.tls("localhost", listener.addr[1], connect_timeout: 0.1)
          end
        end
      end
    end
    wait_until(what: "the close of the sockets") { socket_count <= before }
  ensure
    listener&.close
  end

  def test_a_handshake_may_take_longer_than_a_read
    listener = TCPServer.new("127.0.0.1", 0)
    serving = Thread.new do
      socket = listener.accept
      socket.wait_readable
      sleep 0.3
      OpenSSL::SSL::SSLSocket.new(socket, Certificates.context).accept
    end
    stream = Heddle::Stream.tls("localhost", listener.addr[1], tls: authority, connect_timeout: 20, read_timeout: 0.1)
    assert_predicate stream, :tls?
    assert_equal 0.1, stream.read_timeout
  ensure
    serving&.join
    [listener, stream].compact.each(&:close)
  end

  def test_tls_begins_once
    with_tls_server do |port, _|
      stream = Heddle::Stream.tls("localhost", port, tls: authority, timeout: 10)
      error = assert_raises(IOError) { stream.start_tls("localhost", authority) }
      assert_includes error.message, "TLS has already begun with localhost:#{port}"
      assert_equal "hello\n", stream.gets
    ensure
      stream&.close
    end
  end

  def test_bytes_before_tls_are_refused
    listener = TCPServer.new("127.0.0.1", 0)
    stream = Heddle::Stream.connect("127.0.0.1", listener.addr[1], timeout: 5)
    peer = listener.accept
    peer.write("OK\nand something that an attacker put here")
    assert_equal "OK\n", stream.gets
    assert_includes assert_raises(IOError) { stream.start_tls("localhost") }.message, "in clear text"
    assert_predicate stream, :closed?
  ensure
    [listener, peer, stream].compact.each(&:close)
  end

  # Anybody may have cut off a connection that ends without close_notify.
  def test_an_end_without_close_notify_is_an_error
    [true, false].each do |politely|
      serve = lambda do |peer|
        peer.write("all there is")
        peer.to_io.close unless politely
      end
      with_tls_server(serve: serve) do |port, _|
        stream = Heddle::Stream.tls("localhost", port, tls: authority, timeout: 5)
        if politely
          assert_equal "all there is", stream.read
        else
          assert_raises(OpenSSL::SSL::SSLError, SystemCallError) { stream.read }
        end
        assert_equal !politely, stream.closed?
      ensure
        stream&.close
      end
    end
  end

  def test_the_peer_gets_close_notify
    heard = Queue.new
    with_tls_server(serve: ->(peer) { heard << [peer.read, peer.eof?] }) do |port, seen|
      stream = Heddle::Stream.tls("localhost", port, tls: authority, timeout: 5)
      stream.write("last words")
      assert_raises(IOError) { stream.close_write }
      stream.close
      assert_equal ["last words", true], heard.pop
      assert_equal false, seen.pop
    end
  end

  def test_tls_1_1_is_refused_by_default
    context = Certificates.context
    begin
      context.min_version = context.max_version = OpenSSL::SSL::TLS1_1_VERSION
    rescue OpenSSL::SSL::SSLError
      skip "this OpenSSL does not speak it at all"
    end
    with_tls_server(context: context) do |port, _|
      assert_raises(OpenSSL::SSL::SSLError, SystemCallError) do
        Heddle::Stream.tls("localhost", port, tls: authority, timeout: 5)
      end
    end
  end

  # OpenSSL's own server, which on command starts a handshake in the middle of an exchange (TLS 1.2), or new keys
  # (1.3).
  def test_new_keys_in_the_middle_of_an_exchange
    skip "there is no openssl command" unless system("which openssl", out: File::NULL, err: File::NULL)

    Dir.mktmpdir do |folder|
      File.write("#{folder}/pem", Certificates.server.map(&:to_pem).join)
      {"-tls1_2" => "r", "-tls1_3" => "K"}.each do |version, command|
        port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
        server =
          IO.popen(%W[openssl s_server -accept 127.0.0.1:#{port} -cert #{folder}/pem -key #{folder}/pem #{version}],
            "r+", err: File::NULL)
        stream = wait_until do
          Heddle::Stream.tls("localhost", port, tls: authority, timeout: 10)
        rescue Errno::ECONNREFUSED
          nil
        end
        %i[thread fiber].each do |wait|
          in_mode(wait) do
            read = Queue.new
            serving = Thread.new do
              server.write("1\n")
              read.pop
              server.write("#{command}\n")
              # Bytes in the same packet as a command are taken for part of it.
              while read.empty?
                sleep 0.05
                server.write("2\n")
              end
            end
            assert_equal "1\n", stream.gets
            read << true
            assert_equal "2\n", stream.gets
            read << true
            serving.join
            stream.readpartial(100) while stream.wait_readable(0.1) # it may have printed it more than once
            stream.write("heard\n")
            stream.flush
          end
        end
        # In TLS 1.3 it prints nothing after new keys.
        wait_until { server.gets.include?("heard") } if version == "-tls1_2"
        stream.close
      ensure
        Process.kill(:KILL, server.pid)
        server.close
      end
    end
  end

  def test_a_record_holds_16_kib_of_a_flush
    with_tls_server(serve: ->(peer) { peer.read(160 << 10) && peer.write("done") }) do |port, _|
      stream = Heddle::Stream.tls("localhost", port, tls: authority, timeout: 10)
      before = stream.statistics[:sends]
      40.times { stream.write("x" * 1024) }
      stream.flush
      assert_equal 3, stream.statistics[:sends] - before
      stream.write("y" * (120 << 10))
      stream.flush
      assert_operator stream.statistics[:sends] - before, :<=, 3 + 8 + 2
      assert_equal "done", stream.read(4)
    ensure
      stream&.close
    end
  end
end
