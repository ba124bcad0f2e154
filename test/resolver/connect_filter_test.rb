# frozen_string_literal: true

require "test_helper"
require "support/connect_filter_helpers"
require "support/hosts"

runs_on rubies: :ends, backends: :one

# Heddle.connect_filter: no way of connecting goes around the filters. Which filters bind, what they may do, and that
# the checked address is what is connected to: connect_filter_*_test.rb.
class ConnectFilterTest < Minitest::Test
  include ConnectFilterHelpers

  # ---- every way asks

  def test_every_kind_of_connect_is_refused_and_passes_the_name
    accepted = Queue.new
    with_server(->(connection) { accepted << connection }) do |port|
      everywhere do |place|
        WAYS.merge(WAYS_TO_ADDRESSES).each do |name, way|
          asked = []
          refuse = ->(address, host) { asked.push([address.ip_address, address.ip_port, host]) && nil }
          error = assert_raises(Refused, "#{name} in #{place}") do
            Heddle.connect_filter(refuse) { way.call("localhost", port) }
          end
          host = WAYS.key?(name) ? "localhost" : "127.0.0.1"
          # The machine's hosts file says which addresses localhost has; glibc also reads its ::1 as 127.0.0.1.
          assert_equal [[port, host]], asked.map { |_, *rest| rest }.uniq, "#{name} in #{place}"
          assert_empty asked.map(&:first) - ["127.0.0.1", "::1"], "#{name} in #{place}"
          assert_equal [host, asked.first.first], [error.host, error.address.ip_address], name
          assert_match(/does not allow a connect to .*#{asked.first.first}/, error.message)
        end
      end
    end
    assert_empty accepted
  end

  def test_every_kind_of_connect_works_when_allowed
    with_server(->(connection) { connection.read(1) }) do |port|
      everywhere do |place|
        WAYS.merge(WAYS_TO_ADDRESSES).each do |name, way|
          asked = 0
          Heddle.connect_filter(->(address, _) { (asked += 1) && address.ipv4? }) { way.call("localhost", port) }
          assert_includes 1..2, asked, "#{name} in #{place}"
        end
      end
    end
  end

  def test_unix_sockets_ask_with_their_path
    path = File.join(Dir.mktmpdir, "socket")
    server = UNIXServer.new(path)
    asked = []
    allow = false
    filter = ->(address, host) { asked.push([address.unix_path, host]) && allow }
    everywhere do |place|
      WAYS_TO_PATHS.each do |name, way|
        allow = false
        error = assert_raises(Refused, "#{name} in #{place}") { Heddle.connect_filter(filter) { way.call(path) } }
        assert_equal path, error.host
        assert_raises(IO::WaitReadable, name) { server.accept_nonblock }
        allow = true
        Heddle.connect_filter(filter) { way.call(path) }
        server.accept_nonblock.close
        assert_raises(Refused) { Heddle.connect_filter(PUBLIC) { way.call(path) } }
      end
    end
    assert_equal [[path, path]], asked.uniq
  ensure
    server&.close
    File.unlink(path)
    Dir.rmdir(File.dirname(path))
  end

  def test_clients_for_caches_and_databases
    with_server(->(connection) { connection.close }) do |port|
      everywhere do
        Heddle.connect_filter(PUBLIC) do
          %w[mysql postgresql].each do |kind|
            error = assert_raises(StandardError) { Heddle::DB.connect("#{kind}://me:secret@localhost:#{port}/base") }
            assert_kind_of Refused, causes(error).find { |cause| Refused === cause }, error.full_message
          end
          error = assert_raises(StandardError) { Heddle::Memcached.new("localhost:#{port}").get("key") }
          assert_kind_of Refused, causes(error).last, error.full_message
        end
      end
    end
  end

  # The gem async, or any other scheduler.
  def test_under_another_scheduler
    skip Hosts.missing(:async) if Hosts.missing(:async)

    with_server(->(connection) { connection.read(1) }) do |port|
      Hosts.run(:async) do |spawn|
        Heddle.connect_filter(PUBLIC) do
          WAYS.each do |name, way|
            assert_raises(Refused, name) { way.call("localhost", port) }
            spawn.call { assert_raises(Refused, name) { way.call("localhost", port) } }.value
          end
        end
        WAYS.each_value { |way| way.call("localhost", port) }
      end
    end
  end

  # resolv-replace and socksify replace TCPSocket#initialize, and keep Ruby's own under another name.
  def test_libraries_that_replaced_initialize
    replace = <<~RUBY
      class TCPSocket
        alias_method :kept_by_a_library, :initialize
        def initialize(host, port) = kept_by_a_library($moved || host, port)
      end
    RUBY
    [nil, "yes"].each do |first|
      out = assert_child(<<~RUBY, heddle: false, env: {"FIRST" => first})
        if ENV["FIRST"]
          eval(#{replace.dump})
          require "heddle"
        else
          require "heddle"
          eval(#{replace.dump})
        end
        server = TCPServer.new("127.0.0.1", 0)
        port = server.addr[1]
        TCPSocket.new("127.0.0.1", port).close
        asked = []
        Heddle.connect_filter { |address, host| asked << address.ip_address; address.ip_address != "127.0.0.1" }
        $moved = "127.0.0.1"
        [-> { TCPSocket.new("127.0.0.9", port) }, -> { Heddle.run { TCPSocket.open("127.0.0.9", port) } }].each do |way|
          way.call
          puts "went around"
        rescue Heddle::ConnectRefused
          puts "refused"
        end
        p asked.last
      RUBY
      assert_equal "refused\nrefused\n\"127.0.0.1\"\n", out
    end
  end

  def test_without_the_patches_of_ruby
    out = assert_child(<<~RUBY, env: {"HEDDLE_RUBY_FIXES" => "off"})
      server = TCPServer.new("127.0.0.1", 0)
      port = server.addr[1]
      Heddle.connect_filter(Heddle::ConnectFilter::PUBLIC)
      [-> { TCPSocket.new("localhost", port) }, -> { Socket.tcp("localhost", port) }].each do |way|
        2.times do |n|
          n.zero? ? way.call : Heddle.run(&way)
          puts "went around"
        rescue Heddle::ConnectRefused
          puts "refused"
        end
      end
    RUBY
    assert_equal "refused\n" * 4, out
  end

  # ---- programs

  def test_redirects_to_a_metadata_service
    require "open-uri"
    require "faraday"
    answer = "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data/\r\nContent-Length: 0\r\n" \
      "Connection: close\r\n\r\n"
    with_server(->(connection) { connection.readpartial(9999) && connection.write(answer) }) do |port|
      url = "http://127.0.0.1:#{port}/"
      everywhere do
        Heddle.connect_filter(->(address, host) { address.ip_port == port || PUBLIC.call(address, host) }) do
          error = assert_raises(Refused) { URI.parse(url).open }
          assert_equal "169.254.169.254", error.address.ip_address
          reply = Net::HTTP.get_response(URI(url))
          error = assert_raises(Refused) { Net::HTTP.get(URI(reply["Location"])) }
          assert_equal "169.254.169.254", error.host
          connection = Faraday.new
          reply = connection.get(url)
          error = assert_raises(Faraday::ConnectionFailed) { connection.get(reply.headers["location"]) }
          assert_kind_of Refused, error.wrapped_exception
        end
      end
    end
  end

  # The program connects to the proxy: the filter gets its address and its name.
  def test_filters_see_the_proxy_instead_of_its_target
    with_server(->(connection) { connection.readpartial(999) }) do |port|
      everywhere do
        asked = []
        Heddle.connect_filter(->(address, host) { asked.push([address.ip_port, host]) && false }) do
          http = Net::HTTP.new("public.example", 443, "localhost", port)
          http.use_ssl = true
          assert_raises(Refused) { http.start }
        end
        assert_equal [[port, "localhost"]], asked.uniq
      end
    end
  end

  # A connection that is kept for later sessions is asked for again. One that is refused stays for others.
  def test_persistent_connections
    requests = 0
    answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    serve = lambda do |connection|
      while connection.gets("\r\n\r\n")
        requests += 1
        connection.write(answer)
      end
    end
    Heddle::NetHTTP.keep_alive
    with_server(serve) do |port|
      url = URI("http://127.0.0.1:#{port}/")
      reused = -> { Heddle::NetHTTP.stats[:reused] }
      everywhere do
        Net::HTTP.get(url)
        before = [requests, reused.call]
        asked = []
        refuse = ->(address, host) { asked.push([address.ip_address, address.ip_port, host]) && false }
        assert_raises(Refused) { Heddle.connect_filter(refuse) { Net::HTTP.get(url) } }
        assert_equal [["127.0.0.1", port, "127.0.0.1"]] * 2, asked # the kept one, and a new one
        assert_equal before, [requests, reused.call]
        assert_equal "ok", Heddle.connect_filter(->(*) { asked.clear && true }) { Net::HTTP.get(url) }
        assert_empty asked
        assert_raises(Heddle::DeadlineExceeded) do
          Heddle.deadline(0.02) { Heddle.connect_filter(->(*) { sleep }) { Net::HTTP.get(url) } }
        end
        assert_equal reused.call, before.last + 1
      end
    end
  ensure
    Heddle::NetHTTP.keep_alive(nil)
  end

  # ---- the method

  def test_arguments
    assert_nil Heddle.connect_filter
    filter = ->(*) { true }
    assert_same filter, Heddle.connect_filter(filter)
    assert_same filter, Heddle.connect_filter
    assert_nil Heddle.connect_filter(nil)
    assert_kind_of Proc, Heddle.connect_filter { true }
    assert_equal 5, Heddle.connect_filter(PUBLIC) { 5 }
    assert_raises(TypeError) { Heddle.connect_filter(7) }
    assert_raises(TypeError) { Heddle.connect_filter(nil) { 1 } }
    assert_raises(ArgumentError) { Heddle.connect_filter(PUBLIC, PUBLIC) }
    assert_raises(ArgumentError) { TCPSocket.new }
    assert_raises(ArgumentError) { Socket.open(:INET, :STREAM, &:connect) }
  end
end
