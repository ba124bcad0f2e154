# frozen_string_literal: true

require "test_helper"
require "support/simulated"
require "support/certificates"
require "openssl"

runs_on rubies: :ends

# A stream against a peer whose bytes are known beforehand, over links that cut, delay, stall and reset: all bytes come
# in their order, none is lost or doubled, each operation ends within its time, and a stream that was interrupted says
# so from then on.
class SimulatedStreamTest < Minitest::Test
  include Simulated

  TOLERANCE = 0.00001
  OVER = [SystemCallError, IOError, Timeout::Error, OpenSSL::SSL::SSLError].freeze

  # Bytes of numbered lines.
  def self.bytes(name, count)
    text = +""
    number = 0
    text << "#{name}#{number += 1}#{"." * (number * 37 % 90)}\n" while text.bytesize < count
    text.byteslice(0, count)
  end
  UP, DOWN = bytes("up", 1_500_000), bytes("down", 1_500_000)

  # The peer: takes what comes, and sends its own bytes.
  class Peer
    attr_reader :taken

    def initialize(world, count, context = nil)
      @world, @count, @context = world, count, context
      @taken = +""
    end

    def serve(socket)
      socket = OpenSSL::SSL::SSLSocket.new(socket, @context).tap(&:accept) if @context
      sender = Heddle.spawn { send_all(socket) }
      while (bytes = socket.readpartial(@world.draw(1..50_000)))
        @taken << bytes
        sleep(@world.draw(0.0..0.3)) if @world.draw < 0.2
      end
    rescue *OVER
      nil
    ensure
      sender&.wait # it may have bytes left
    end

    private

    def send_all(socket)
      at = 0
      while at < @count
        size = [@world.draw(1..20_000), @count - at].min
        socket.write(DOWN.byteslice(at, size))
        at += size
        sleep(@world.draw(0.0..1.0)) if @world.draw < 0.3
      end
      @context ? socket.close : socket.close_write
    rescue *OVER
      nil
    end
  end

  # The user of a stream.
  class User
    attr_reader :read, :written, :error
    attr_reader :cancelled # whether a cancel has interrupted an operation

    def initialize(world, stream, test)
      @world, @stream, @test = world, stream, test
      @read, @written = +"", 0
    end

    # What raises one of OVER is over.
    def until_over
      yield
    rescue *OVER => error
      @error ||= error
    end

    def write_all(count)
      @most = (count > 100_000) ? 300_000 : 60_000 # a socket takes a part of such a lot
      until_over do
        while @written < count
          write(UP.byteslice(@written, [size(@most), count - @written].min))
          @stream.sync = @world.draw < 0.5 if @world.draw < 0.1
          timely(:write) { @stream.flush } if @world.draw < 0.2
          sleep(@world.draw(0.0..0.5)) if @world.draw < 0.2
        end
        timely(:write) { @stream.flush }
        @stream.close_write unless @stream.tls?
      end
    end

    def read_all
      until_over do
        while (bytes = read_some)
          @read << bytes
          sleep(@world.draw(0.0..0.5)) if @world.draw < 0.1
        end
      end
    end

    private

    def size(most = 60_000) = @world.draw(1..((@world.draw < 0.5) ? 200 : most))

    # What is counted as written may have been sent: of a write that fails, anything.
    def write(bytes)
      if @world.draw < 0.3
        count = @stream.write_nonblock(bytes, exception: false)
        (count == :wait_writable) ? @stream.wait_writable(0.1) : @written += count
      else
        @written += bytes.bytesize
        timely(:write) { (@world.draw < 0.5) ? @stream << bytes : @stream.write(bytes[0], bytes[1..]) }
      end
    end

    # @return [String, nil]
    def read_some
      case @world.draw(0..6)
      when 0 then timely(:read) { @stream.gets }
      when 1 then timely(:read) { @stream.read(size) }
      when 2 then without_waiting
      when 3 then timely(:read) { @stream.readpartial(size) }
      when 4 then timely(:read) { @stream.gets("\n", @world.draw(1..40)) }
      when 5 then peeked
      else unread(timely(:read) { @stream.readpartial(size) })
      end
    rescue Heddle::UnexpectedEnd
      raise
    rescue EOFError
      nil
    end

    def without_waiting
      bytes = @stream.read_nonblock(size, exception: false)
      @stream.wait_readable(0.1) if bytes == :wait_readable
      (bytes == :wait_readable) ? "" : bytes
    end

    def peeked
      return if timely(:read) { @stream.eof? }

      bytes = @stream.peek(1)
      @test.assert_equal bytes, @stream.read(1)
      bytes
    end

    def unread(bytes)
      kept = bytes.byteslice(0, @world.draw(0..bytes.bytesize))
      @stream.unread(bytes.byteslice(kept.bytesize..)) if kept.bytesize < bytes.bytesize
      kept
    end

    # An operation ends within its time. If that is over, the stream is closed, and says so.
    def timely(kind)
      limit = @stream.public_send("#{kind}_timeout")
      since = @world.now
      yield
    rescue Heddle::DeadlineExceeded
      @test.assert_in_delta limit, @world.now - since, TOLERANCE
      raise
    rescue Heddle::Cancellation
      @cancelled = true
      raise
    ensure
      @test.assert_operator @world.now - since, :<=, limit + TOLERANCE if limit
    end
  end
  private_constant :Peer, :User

  def setup
    @context = Certificates.context # of the real time, as OpenSSL goes by
    @tls = {ca_file: Certificates.authority_file}
  end

  def serve(world, context = nil)
    down, up = Array.new(2) { (world.draw < 0.06) ? world.draw(0..1_200_000) : world.draw(0..40_000) }
    peer = Peer.new(world, down, context)
    world.host("localhost", "10.0.0.1") { |host| host.tcp(7000) { |socket| peer.serve(socket) } }
    [peer, down, up]
  end

  def converse(world, stream, up)
    user = User.new(world, stream, self)
    [user, [Heddle.spawn { user.write_all(up) }, Heddle.spawn { user.read_all }]]
  end

  def assert_in_order(user, peer)
    assert DOWN.start_with?(user.read), "bytes are wrong from #{wrong_from(DOWN, user.read)} on"
    assert UP.start_with?(peer.taken), "bytes are wrong from #{wrong_from(UP, peer.taken)} on"
    assert_operator peer.taken.bytesize, :<=, user.written
  end

  def wrong_from(right, bytes) = (0...bytes.bytesize).find { |at| right.getbyte(at) != bytes.getbyte(at) }

  # Over a link that is slow and loses, but neither resets nor stalls.
  def assert_everything_comes(world, context, **options)
    peer, down, up = serve(world, context)
    world.link("localhost", **bad_link(world), reset: 0, stall: 0)
    stream = Heddle::Stream.connect("localhost", 7000, **options)
    user, tasks = converse(world, stream, up)
    tasks.each(&:value)
    assert_nil user.error
    stream.close if stream.tls?
    sleep 600
    assert_in_order(user, peer)
    assert_equal [down, up], [user.read.bytesize, peer.taken.bytesize]
    stream.close
  end

  def test_everything_comes
    simulate(60) { |world| assert_everything_comes(world, nil) }
  end

  # The server ends after its own bytes: it reads until the client has closed.
  def test_everything_comes_by_tls
    simulate(15) { |world| assert_everything_comes(world, @context, tls: @tls) }
  end

  def test_what_was_interrupted_is_closed
    ends = Hash.new(0)
    simulate(80) do |world|
      peer, _, up = serve(world)
      world.link("localhost", **bad_link(world), reset: world.draw(0.0..0.05), stall: world.draw(0.0..0.05))
      stream = connect(world, read_timeout: world.draw(0.5..5.0), write_timeout: world.draw(0.5..5.0)) or next
      user, tasks = converse(world, stream, up)
      tasks << Heddle.spawn { interrupt(world, stream, tasks.first(2)) }
      tasks.each(&:wait)
      ends[user.error.class] += 1
      assert_in_order(user, peer)
      assert_predicate stream, :closed? if user.cancelled || user.error.is_a?(Timeout::Error)
      assert_says_so(stream)
      stream.close
    end
    assert_operator ends.size, :>, 1, ends.to_s
  end

  def connect(world, **options)
    before = world.now
    Heddle::Stream.connect("localhost", 7000, connect_timeout: 3, **options)
  rescue Heddle::DeadlineExceeded
    assert_in_delta 3, world.now - before, TOLERANCE
    nil
  end

  def interrupt(world, stream, tasks)
    sleep(world.draw(0.0..10.0))
    case world.draw(0..2)
    when 0 then tasks.sample(random: world.random).cancel
    when 1 then stream.close
    end
  end

  def assert_says_so(stream)
    return unless stream.closed?

    assert_raises(IOError) { stream.read(1) }
    assert_raises(IOError) { stream.write("x") }
    refute_predicate stream, :healthy?
  end
end
