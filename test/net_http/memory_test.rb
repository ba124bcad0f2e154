# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/scripted_http_server"
require "heddle/net_http"
require "objspace"

runs_on rubies: :ends, except: %i[portable newest_net_http], short: false

# C code's references to Ruby objects, while the GC frees and moves what it can; and a process in which everything
# exists twice.
class NetHTTPMemoryTest < Minitest::Test
  include LoopHelpers

  mode :thread

  BODY = "0123456789" * 500
  HEAD = "HTTP/1.1 200 OK\r\nX-One: #{"a" * 300}\r\nX-Two: b\r\n folded\r\nX-Two: again\r\n"
  REPLIES = {
    sized: "#{HEAD}Content-Length: #{BODY.bytesize}\r\n\r\n#{BODY}",
    chunked: "#{HEAD}Transfer-Encoding: chunked\r\n" \
      "\r\n#{BODY.scan(/.{1,1700}/).map { |part| "#{part.bytesize.to_s(16)}\r\n#{part}\r\n" }.join}0\r\n\r\n",
    inflated: "#{HEAD}Content-Encoding: gzip\r\nContent-Length: #{Zlib.gzip(BODY).bytesize}\r\n\r\n".b + Zlib.gzip(BODY)
  }.freeze

  # What the client does in its own process, given the port and the scheme.
  CLIENT = <<~RUBY
    require "heddle/net_http"
    require "openssl"
    def client(port, tls)
      http = Net::HTTP.new("127.0.0.1", port, nil)
      http.use_ssl = tls
      http.verify_mode = OpenSSL::SSL::VERIFY_NONE
      http
    end

    def exchange(http, times)
      times.times do
        response = http.get("/", "X-Mine" => "value")
        raise response.to_hash.inspect unless response["x-two"] == "b folded, again" && response["x-one"] == "a" * 300
        raise "body: \#{response.body.bytesize}" unless response.body == "0123456789" * 500
        pieces = []
        http.request_post("/", "body" * 1000) { |reply| reply.read_body { |piece| pieces << piece } }
        raise "pieces: \#{pieces.map(&:bytesize)}" unless pieces.join == "0123456789" * 500
      end
    end
  RUBY

  REPLIES.each do |shape, reply|
    [false, true].each do |tls|
      define_method(:"test_gc_at_each_step_#{shape}#{"_tls" if tls}") do
        with_scripted(tls, reply) do |port|
          assert_child(<<~RUBY, timeout: 100)
            #{CLIENT}
            client(#{port}, #{tls}).start do |http|
              exchange(http, 1)
              GC.stress = true
              exchange(http, 1)
              GC.stress = false
            end
            raise "not fast" unless Heddle::NetHTTP.stats[:fast] > 10 && Heddle::NetHTTP.stats[:fallback].empty?
          RUBY
        end
      end
    end
  end

  def test_objects_that_move
    skip "this Ruby cannot compact" unless GC.respond_to?(:compact)
    with_scripted(false, REPLIES[:chunked]) do |port|
      assert_child(<<~RUBY)
        #{CLIENT}
        GC.auto_compact = true
        http = client(#{port}, false)
        3.times { http.start { exchange(http, 2) && GC.compact } }
        Heddle.run { Heddle.spawn { client(#{port}, false).start { |other| exchange(other, 2) && GC.compact } }.value }
        raise "not fast" unless Heddle::NetHTTP.stats[:fast] > 10
      RUBY
    end
  end

  # A body that is read without the GVL while other threads allocate and collect.
  def test_collecting_beside_a_large_body
    body = "0123456789abcdef" * 300_000
    with_scripted(false, "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}") do |port|
      assert_child(<<~RUBY)
        #{CLIENT}
        collector = Thread.new { loop { Array.new(1000) { "x" * 100 } && GC.start } }
        bodies = Array.new(3) { Thread.new { client(#{port}, false).start { |http| http.get("/").body } } }.map(&:value)
        raise "differs" unless bodies.all? { |body| body == "0123456789abcdef" * 300_000 }
        collector.kill
      RUBY
    end
  end

  # A collection frees bit by bit as objects are made, and a body of many MiB makes hardly any.
  def test_garbage_is_freed_before_much_more_is_allocated
    assert_collected_meanwhile("response.read_body { |segment| states << at_work.call }")
  end

  def test_garbage_is_freed_before_the_next_string_is_allocated
    assert_collected_meanwhile("at_work.call; response.read_body", "at_work.call")
  end

  def test_a_disabled_gc_stays_disabled
    body = "0123456789abcdef" * 500_000
    with_scripted(false, "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}") do |port|
      assert_child(<<~RUBY)
        #{CLIENT}
        GC.disable
        client(#{port}, false).start do |http|
          http.request_get("/") { |response| response.read_body { |segment| segment } }
        end
        raise "enabled" unless GC.disable
      RUBY
    end
  end

  # A connection that was open before belongs to the parent; the child opens its own.
  def test_fork
    with_scripted(false, REPLIES[:sized]) do |port|
      assert_child(<<~RUBY)
        #{CLIENT}
        client(#{port}, false).start do |http|
          exchange(http, 1)
          child = fork do
            before = Heddle::NetHTTP.stats[:fast]
            client(#{port}, false).start { |other| exchange(other, 2) }
            Heddle.run { Heddle.spawn { client(#{port}, false).start { |other| exchange(other, 2) } }.value }
            exit!(Heddle::NetHTTP.stats[:fast] > before ? 0 : 1)
          end
          raise "the child failed" unless Process.wait2(child).last.success?
          exchange(http, 1)
        end
      RUBY
    end
  end

  # Thousands may wait at once: a page each, if a buffer for the reply were made before the reply arrives.
  def test_a_waiting_task_holds_no_buffer_for_the_reply
    skip "elsewhere IO's own method reads" unless BasicSocket.method_defined?(:read_nonblock, false)
    server = TCPServer.new("127.0.0.1", 0)
    %i[disable enable].each do |switch|
      Heddle::NetHTTP.public_send(switch)
      Heddle.run do
        http = Net::HTTP.new("127.0.0.1", server.addr[1], nil)
        request = Heddle.spawn { http.start { http.get("/").body } }
        socket = server.accept
        socket.readpartial(1000)
        sleep(0) until request.status == :waiting
        assert_operator ObjectSpace.memsize_of(http.instance_variable_get(:@socket).instance_variable_get(:@rbuf)), :<,
          1000, switch
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n#{BODY * 8}")
        assert_equal BODY * 8, request.value
      ensure
        socket&.close
      end
    end
  ensure
    Heddle::NetHTTP.enable
    server.close
  end

  private

  # The child begins a collection as soon as the head has arrived; it would not finish by itself before the body has.
  def assert_collected_meanwhile(reading, after = "states.last")
    body = "0123456789abcdef" * 400_000
    with_scripted(false, "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}") do |port|
      assert_child(<<~RUBY)
        #{CLIENT}
        kept = Array.new(400_000) { |number| "object number \#{number}" }.each_slice(2).map(&:first)
        begun = false
        at_work = lambda do
          GC.start(immediate_sweep: false) unless begun
          begun = true
          GC.latest_gc_info(:state)
        end
        raise "the collection ended at once: the test proves nothing" unless at_work.call == :sweeping
        begun = false
        GC.start
        states = []
        client(#{port}, false).start { |http| http.request_get("/") { |response| #{reading} } }
        raise "still \#{states.tally}" unless (#{after}) == :none && kept.size == 200_000
      RUBY
    end
  end

  def with_scripted(tls, reply)
    server = ScriptedHTTPServer.new(tls: tls)
    server.play([[{pieces: [reply], ending: nil}] * 20] * 20)
    yield server.port
  ensure
    server&.close
  end
end
