# frozen_string_literal: true

require "test_helper"
require "stringio"
require "support/loop_helpers"
require "support/scripted_http_server"
require "tempfile"
require "heddle/net_http"

runs_on also: %i[yjit], except: %i[portable]

# Bodies that are read into files and similar destinations: those have taken the bytes when << returns, so the next
# bytes use the same memory. A destination that may keep a String gets a new one each time.
class NetHTTPSinksTest < Minitest::Test
  include LoopHelpers

  mode :thread

  def self.replies(body)
    chunks = (0...body.bytesize).step(50_000).map { |at| body.byteslice(at, 50_000) }
    {
      sized: "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n".b + body,
      chunked: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".b +
        chunks.sum("".b) { |chunk| "#{chunk.bytesize.to_s(16)}\r\n".b << chunk << "\r\n" } << "0\r\n\r\n",
      to_the_end: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".b + body
    }
  end

  BODY = Random.new(1).bytes(1 << 20)
  REPLIES = replies(BODY).freeze

  def setup
    Heddle::NetHTTP.enable
  end

  def teardown
    Heddle::NetHTTP.enable
    @servers&.each(&:close)
  end

  # What malloc was asked for meanwhile is less than the body. Strings that are given away would add up to all of it,
  # beside what the server, also in this process, needs for itself.
  def test_memory_is_reused
    large = Random.new(2).bytes(4 << 20)
    self.class.replies(large).each do |shape, reply|
      [Tempfile.create("body"), Tempfile.new("body"), File.open(File::NULL, "wb")].each do |file|
        from = server(false, reply)
        reserved = reserved_while { fetch_from(from, file) }
        assert_operator reserved, :<, large.bytesize, "#{shape} to a #{file.class}"
      ensure
        file.close
        File.delete(file.path) unless file.path == File::NULL
      end
      from = server(false, reply)
      keeps = Class.new { def <<(_) = self }.new
      assert_operator reserved_while { fetch_from(from, keeps) }, :>=, large.bytesize
    end
  end

  def test_bodies_to_files_pipes_and_string_ios
    each_way do |shape, tls|
      Tempfile.create("body") do |file|
        fetch(shape, tls, file.binmode)
        assert_equal BODY, File.binread(file.tap(&:flush).path)
      end
      Tempfile.open("body") do |file|
        fetch(shape, tls, file)
        assert_equal BODY, File.binread(file.tap(&:flush).path)
      end
      sink = StringIO.new("".b)
      fetch(shape, tls, sink)
      assert_equal BODY, sink.string
      reader, writer = IO.pipe(binmode: true)
      reading = Thread.new { reader.read }
      fetch(shape, tls, writer)
      writer.close
      assert_equal BODY, reading.value
    ensure
      reader&.close
    end
  end

  def test_in_a_fiber
    got = Heddle.run do
      reader, writer = IO.pipe(binmode: true)
      reading = Heddle.spawn { reader.read }
      fetch(:chunked, false, writer)
      writer.close
      reading.value
    end
    assert_equal BODY, got
  end

  # Such methods may keep their argument.
  def test_destinations_with_a_programs_own_method
    each_way do |shape, tls|
      Tempfile.create("body") do |file|
        kept = []
        [file, StringIO.new("".b)].each do |sink|
          kept.clear
          sink.define_singleton_method(:write) { |piece| kept.push(piece) && piece.bytesize }
          fetch(shape, tls, sink)
          assert_equal BODY, kept.join
        end
      end
      kept = []
      fetch(shape, tls, kept)
      assert_equal BODY, kept.join
    end
  end

  def test_an_error_of_the_destination
    each_way do |shape, tls|
      reader, writer = IO.pipe
      reader.close
      assert_raises(Errno::EPIPE) { fetch(shape, tls, writer) }
    ensure
      writer&.close
    end
  end

  def test_gc_at_each_step
    port = server(false, self.class.replies(BODY.byteslice(0, 100_000))[:chunked]).port
    assert_child(<<~RUBY, timeout: 100)
      require "heddle/net_http"
      sink = File.open(File::NULL, "w")
      text = StringIO.new("".b)
      [sink, text].each do |to|
        Net::HTTP.start("127.0.0.1", #{port}) do |http|
          http.request_get("/") do |reply|
            GC.stress = true
            reply.read_body(to)
          ensure
            GC.stress = false
          end
        end
      end
      raise "another body: \#{text.string.bytesize} bytes" unless text.string.bytesize == 100_000
      raise "not fast" unless Heddle::NetHTTP.stats[:fast] > 3
    RUBY
  end

  private

  # The scripted server breaks TLS off, which does not end a body.
  def each_way(ways = [false, true])
    REPLIES.each_key { |shape| ways.each { |tls| yield shape, tls unless tls && shape == :to_the_end } }
  end

  def server(tls, reply)
    (@servers ||= []) << (made = ScriptedHTTPServer.new(tls: tls))
    made.play(
      [[{pieces: (0...reply.bytesize).step(1 << 18).map { |at| reply.byteslice(at, 1 << 18) }, ending: :close}]] * 2
    )
    made
  end

  def fetch(shape, tls, destination) = fetch_from(server(tls, REPLIES.fetch(shape)), destination, tls)

  def fetch_from(server, destination, tls = false)
    http = Net::HTTP.new("127.0.0.1", server.port, nil)
    http.use_ssl = tls
    http.verify_mode = OpenSSL::SSL::VERIFY_NONE if tls
    http.start { http.request_get("/") { |reply| reply.read_body(destination) } }
  end

  # Bytes; no other code of this process may allocate much meanwhile.
  def reserved_while
    GC.start
    GC.disable
    before = GC.stat(:malloc_increase_bytes)
    yield
    GC.stat(:malloc_increase_bytes) - before
  ensure
    GC.enable
  end
end
