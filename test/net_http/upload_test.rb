# frozen_string_literal: true

require "test_helper"
require "pathname"
require "stringio"
require "tempfile"
require "zlib"
require "support/loop_helpers"
require "support/refusals"
require "support/scripted_http_server"
require "support/system_calls"
require "heddle/net_http"
require "heddle"

runs_on rubies: :ends

# Request bodies from readers: the same bytes arrive as with stock, from any source, and the source is left at the
# same position as by stock.
class NetHTTPUploadTest < Minitest::Test
  include LoopHelpers
  include Refusals

  mode :thread

  BYTES = Random.new(7).bytes(3_000_017).freeze
  REPLY = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}.freeze
  SMALL_BUFFER = [16_384].pack("i").freeze

  # Has one of the two methods that are called, and returns less than it is asked for.
  class Reader
    attr_reader :asked

    def initialize(bytes, most: 10_000)
      @source = StringIO.new(bytes)
      @most = most
      @asked = []
    end

    private

    def take(length, buffer)
      @asked << length
      got = @source.read([length, @most].min) or return
      buffer.replace(got)
    end
  end

  class ReaderByRead < Reader
    def read(length, buffer) = take(length, buffer)
  end

  class ReaderByReadpartial < Reader
    def readpartial(length, buffer) = take(length, buffer) || raise(EOFError, "that was all")
  end

  # Ends with an empty String, as some do.
  class ReaderOfNothing < Reader
    def read(length, buffer) = take(length, buffer) || buffer.clear
  end

  # Has nothing for the moment, as Down's chunks may be.
  class ReaderByPieces
    def initialize(*pieces) = @pieces = pieces

    def readpartial(_length, buffer) = buffer.replace(@pieces.shift || raise(EOFError, "that was all"))
  end

  def setup
    Heddle::NetHTTP.enable
    @servers = [@server = ScriptedHTTPServer.new]
    @file = Tempfile.new("upload").tap { |file| file.binmode && file.write(BYTES) && file.flush }
    @before = Heddle::NetHTTP.stats
  end

  def teardown
    Heddle::NetHTTP.enable
    @servers.each(&:close)
    @file.close!
  end

  # What is sent, and where it is read from.
  SOURCES = {
    "file" => ->(test) { File.open(test.path, "rb") },
    "file in the middle" => ->(test) { File.open(test.path, "rb").tap { |file| file.seek(1_000_000) } },
    "file that was read from" => ->(test) { File.open(test.path, "rb").tap { |file| file.read(10) } },
    "file at its end" => ->(test) { File.open(test.path, "rb").tap { |file| file.seek(0, IO::SEEK_END) } },
    "file in text mode" => ->(test) { File.open(test.path, "r:utf-8") },
    "empty file" => ->(_) { File.open(File::NULL) },
    "file of no pages" => ->(_) { File.open("/proc/sys/kernel/ostype") },
    "tempfile" => ->(_) { Tempfile.new("other").tap { |file| file.write("x" * 100_000) && file.rewind } },
    "pathname" => ->(test) { Pathname(test.path) },
    "path" => ->(test) { test.path },
    "stringio" => ->(_) { StringIO.new(BYTES) },
    "stringio in the middle" => ->(_) { StringIO.new(BYTES).tap { |io| io.seek(2_000_001) } },
    "stringio beyond its end" => ->(_) { StringIO.new("abc").tap { |io| io.seek(10) } },
    "stringio with a method" => ->(_) {
      StringIO.new("abc").tap do |io|
        io.define_singleton_method(:readpartial) { |*arguments| super(*arguments).upcase! }
      end
    },
    "read" => ->(_) { ReaderByRead.new(BYTES) },
    "readpartial" => ->(_) { ReaderByReadpartial.new(BYTES) },
    "read of nothing" => ->(_) { ReaderByRead.new("") },
    "read that ends by an empty string" => ->(_) { ReaderOfNothing.new(BYTES) },
    "compressed" => ->(test) { Zlib::GzipReader.new(StringIO.new(Zlib.gzip(BYTES.byteslice(0, 200_000)))) },
    "pipe" => ->(_) {
      IO.pipe.then do |reader, writer|
        writer.write("abc" * 1000)
        writer.close
        reader
      end
    }
  }.freeze

  # Stock would end the body by an empty chunk.
  def test_an_empty_piece
    [false, true].each do |chunked|
      @server.play([[REPLY]])
      put(ReaderByPieces.new("abc", "", "def", ""), chunked: chunked, length: 6)
      _, body = @server.settle.first
      assert_equal "abcdef", body
    end
  end

  SOURCES.each do |name, source|
    %w[sized chunked].each do |framing|
      define_method(:"test_#{name.tr(" ", "_")}_#{framing}") do
        stock, ours = [:disable, :enable].map do |how|
          Heddle::NetHTTP.public_send(how)
          sent(instance_exec(self, &source), framing)
        end
        assert_equal stock, ours
        assert_operator fast, :>, 0
      end
    end
  end

  def test_in_tasks
    @server.play(Array.new(8) { [REPLY] })
    Heddle.run do
      Array.new(8) { |i| Heddle.spawn { i.even? ? put(File.open(path, "rb")) : put(StringIO.new(BYTES)) } }
        .each { |task| assert_equal "200", task.value.code }
    end
    assert_equal [Zlib.crc32(BYTES)] * 8, @server.received.map { |_, body| Zlib.crc32(body) }
  end

  def test_over_tls
    @servers << tls = ScriptedHTTPServer.new(tls: true)
    tls.play([[REPLY] * 3])
    http = Net::HTTP.new("127.0.0.1", tls.port, nil)
    http.use_ssl = true
    http.verify_mode = OpenSSL::SSL::VERIFY_NONE
    http.start do
      put(File.open(path, "rb"), http: http)
      put(File.open(path, "rb"), http: http, chunked: true)
      put(ReaderByRead.new(BYTES), http: http)
    end
    assert_equal [Zlib.crc32(BYTES)] * 3, tls.received.map { |_, body| Zlib.crc32(body) }
    assert_operator fast, :>, 0
  end

  # Without either method, and with objects that have neither.
  def test_errors_as_in_stock
    [[StringIO.new("abc"), {}], [Object.new, {"Content-Length" => "3"}],
      [File.open(path, "rb").tap(&:close), {"Content-Length" => "3"}],
      [StringIO.new("abc").tap(&:close_read), {"Content-Length" => "3"}],
      [File.open(File::NULL, "w"), {"Content-Length" => "3"}],
      [File.open("/"), {"Content-Length" => "3"}],
      ["/no/such/file", {"Content-Length" => "3"}]].each do |stream, header|
      stock, ours = [:disable, :enable].map do |how|
        Heddle::NetHTTP.public_send(how)
        @server.play([[REPLY]] * 3)
        request = Net::HTTP::Put.new("/", "Content-Type" => "x/y", **header)
        request.body_stream = stream
        error = assert_raises(StandardError, stream.inspect) {
          Net::HTTP.start("127.0.0.1", @server.port, nil, nil, nil, nil, max_retries: 0) do |http|
            http.request(request)
          end
        }
        [error.class, error.message.gsub(/0x\h+/, "")]
      end
      assert_equal stock, ours, stream.inspect
    end
  end

  # Ruby code sees sendfile and similar calls only by the calls of the source's methods.
  def test_a_file_is_not_read_by_ruby
    @server.play([[REPLY]])
    source = File.open(path, "rb")
    def source.read(*) = raise("asked")
    def source.readpartial(*) = raise("asked")
    used = Heddle::NetHTTP.stats[:fast]
    Net::HTTP.start("127.0.0.1", @server.port, nil) do |http|
      put(source, http: http)
      assert_equal 4, Heddle::NetHTTP.stats[:fast] - used # is it there, the request, the head, the body
    end
  end

  # A container's filter answers EPERM, a kernel without the call ENOSYS.
  def test_a_file_where_sendfile_is_refused
    number = SystemCalls::NUMBERS[:sendfile] or skip "sendfile's number is not known"
    [Errno::ENOSYS, Errno::EPERM].each do |error|
      refusing(number, error) do |launcher|
        assert_equal "15000 15000", assert_child(<<~'RUBY', launcher: launcher), error.name
          require "heddle/net_http"
          require "tempfile"
          file = Tempfile.new("upload").tap { |it| it.write("0123456789" * 1500) && it.flush }
          server = TCPServer.new("127.0.0.1", 0)
          put = lambda do
            reader = Thread.new do
              peer = server.accept
              length = peer.gets("\r\n\r\n")[/^content-length: (\d+)/i, 1].to_i
              bytes = peer.read(length)
              peer.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
              bytes == File.binread(file.path) ? bytes.bytesize : "other bytes"
            end
            File.open(file.path, "rb") do |source|
              request = Net::HTTP::Put.new("/", "Content-Length" => "15000")
              request.body_stream = source
              Net::HTTP.start("127.0.0.1", server.addr[1], nil) { |http| http.request(request) }
            end
            reader.value
          end
          print put.call, " ", Heddle.run { put.call }
        RUBY
      end
    end
  end

  def test_a_server_that_does_not_read
    listener = Socket.tcp_server_sockets("127.0.0.1", 0).first
    listener.setsockopt(Socket::SOL_SOCKET, Socket::SO_RCVBUF, SMALL_BUFFER)
    Tempfile.create("large") do |large|
      large.truncate(30_000_000)
      [-> { File.open(large.path, "rb") }, -> { StringIO.new(BYTES * 10) },
        -> { ReaderByRead.new(BYTES * 10, most: 1 << 20) }].each do |source|
        [false, true].each do |in_a_task|
          error = assert_within(4, at_least: 0.19) do
            run = -> {
              assert_raises(Net::WriteTimeout) do
                put(source.call, port: listener.local_address.ip_port, write_timeout: 0.2)
              end
            }
            in_a_task ? Heddle.run(&run) : run.call
          end
          assert_kind_of BasicSocket, error.io
        end
      end
    end
  ensure
    listener&.close
  end

  def test_a_deadline
    listener = TCPServer.new("127.0.0.1", 0)
    Tempfile.create("large") do |large|
      large.truncate(50_000_000)
      assert_within(2) do
        assert_raises(Heddle::DeadlineExceeded) do
          Heddle.deadline(0.2) { put(File.open(large.path, "rb"), port: listener.addr[1]) }
        end
      end
      assert_within(2) do
        assert_raises(Heddle::DeadlineExceeded) do
          Heddle.run { Heddle.deadline(0.2) { put(File.open(large.path, "rb"), port: listener.addr[1]) } }
        end
      end
    end
  ensure
    listener&.close
  end

  # While a thread sends it without the GVL.
  def test_interrupting_and_closing
    listener = TCPServer.new("127.0.0.1", 0)
    Tempfile.create("interrupted") do |large|
      large.truncate(50_000_000)
      killed = sending(large, listener)
      killed.kill
      assert_within(3, remeasure: 0) { killed.join }
      http = Net::HTTP.new("127.0.0.1", listener.addr[1], nil)
      closed = sending(large, listener, http: http)
      http.instance_variable_get(:@socket).close
      assert_within(3, remeasure: 0) { assert_raises(IOError) { closed.value } }
    end
    @sources.each(&:close)
    assert_empty open_files.grep(/interrupted/)
  ensure
    listener&.close
  end

  # The server's answer comes first, and may be a refusal.
  def test_expect_100_continue
    @server.close
    @servers.clear
    heard = Queue.new
    with_server(lambda do |connection|
      head = connection.gets("\r\n\r\n")
      heard << head << connection.wait_readable(0.1)
      connection.write("HTTP/1.1 100 Continue\r\n\r\n")
      heard << connection.read(BYTES.bytesize)
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    end) do |port|
      http = Net::HTTP.new("127.0.0.1", port, nil)
      http.continue_timeout = 5
      http.start { assert_equal "ok", put(File.open(path, "rb"), http: http, expect: "100-continue").body }
    end
    assert_match(/\APUT .*^Expect: 100-continue/m, heard.pop)
    assert_nil heard.pop
    assert_equal BYTES, heard.pop
  end

  # A continue_timeout alone, which aws-sdk always sets, makes no request wait.
  def test_a_string_goes_with_the_head
    @server.play([[REPLY] * 2])
    Net::HTTP.start("127.0.0.1", @server.port, nil, nil, nil, nil, continue_timeout: 1) do |http|
      before = Heddle::NetHTTP.stats[:fast]
      assert_equal "200", http.put("/", "abc", "Content-Type" => "x/y").code
      assert_equal 4, Heddle::NetHTTP.stats[:fast] - before # is it there, the request, the head, the body
    end
  end

  # A source that returns as much as it is asked for, and slowly, is sent as its bytes come.
  def test_a_slow_source
    slow = ReaderByRead.new("x" * 200_000, most: 1 << 20)
    slow.define_singleton_method(:read) { |*arguments| sleep(0.01) && super(*arguments) }
    quick = ReaderByRead.new("x" * 2_000_000, most: 1 << 20)
    @server.play([[REPLY] * 2])
    Net::HTTP.start("127.0.0.1", @server.port, nil) do |http|
      put(slow, http: http)
      put(quick, http: http)
    end
    assert_equal [16_384], slow.asked.uniq
    assert_operator quick.asked.max, :>, 100_000
  end

  def test_overridden_methods_of_a_source
    @server.play([[REPLY] * 2])
    called = []
    patch = Module.new do
      define_method(:send_request_with_body_stream) do |*arguments|
        called << :stream
        super(*arguments)
      end
      define_method(:write_header) do |*arguments|
        called << :header
        super(*arguments)
      end
    end
    requests = [Class.new(Net::HTTP::Put) { prepend patch }, Net::HTTP::Put]
      .map { |klass| klass.new("/", "Content-Type" => "x/y", "Content-Length" => "3") }
    requests.last.extend(patch)
    requests.each { |request| request.body_stream = StringIO.new("abc") }
    Net::HTTP.start("127.0.0.1", @server.port, nil) { |http| requests.each { |request| http.request(request) } }
    assert_equal %i[stream header] * 2, called
    assert_equal %w[abc abc], @server.received.map(&:last)
  end

  def path = @file.path

  private

  # Some are closed meanwhile.
  def open_files
    Dir.children("/proc/self/fd").filter_map do |number|
      File.readlink("/proc/self/fd/#{number}")
    rescue Errno::ENOENT
      nil
    end
  end

  def fast = Heddle::NetHTTP.stats[:fast] - @before[:fast]

  # @return [Array] what arrived, and the source's position
  def sent(source, framing)
    @server.play([[REPLY]])
    length = (source.is_a?(String) || source.is_a?(Pathname)) ? BYTES.bytesize : left_in(source)
    put(source, chunked: framing == "chunked", length: length)
    head, body = @server.settle.first
    [head, body.bytesize, Zlib.crc32(body), *position_of(source)]
  end

  def position_of(source)
    source.pos if source.is_a?(File) || source.is_a?(StringIO) || source.is_a?(Tempfile)
  end

  # Some cannot tell.
  def left_in(source)
    case source
    when Reader then source.instance_variable_get(:@source).size
    when StringIO then [source.size - source.pos, 0].max
    when Zlib::GzipReader then 200_000
    when Tempfile then source.size
    when File then source.path.start_with?("/proc") ? 6 : source.size - source.pos
    when IO then 3000
    end
  end

  def put(stream, http: nil, port: @server.port, chunked: false, length: nil, write_timeout: 60, expect: nil)
    request = Net::HTTP::Put.new("/", {"Content-Type" => "x/y", "Expect" => expect}.compact)
    request.body_stream = stream
    chunked ? request["Transfer-Encoding"] = "chunked" : request.content_length = length || left_in(stream)
    return http.request(request) if http

    Net::HTTP.start("127.0.0.1", port, nil, nil, nil, nil, write_timeout: write_timeout, max_retries: 0) do |started|
      started.request(request)
    end
  end

  # A thread that sends the file, and waits for a server that does not read.
  def sending(large, listener, http: Net::HTTP.new("127.0.0.1", listener.addr[1], nil))
    http.max_retries = 0
    (@sources ||= []) << source = File.open(large.path, "rb")
    thread = Thread.new { http.start { put(source, http: http) } }
    thread.report_on_exception = false
    wait_until { source.pos > 0 && thread.stop? }
    thread
  end
end
