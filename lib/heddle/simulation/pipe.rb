# frozen_string_literal: true

module Heddle
  class Simulation
    # One direction of a connection: takes bytes from the socket of one side, and gives them to the other side's when
    # they arrive, in their order.
    class Pipe
      CHUNK = 65_536
      MSS = 1_448      # the most bytes of a segment on an Ethernet
      WINDOW = 262_144 # bytes in flight
      CUT = 0.1        # probability that a segment is cut at some place
      private_constant :CHUNK, :MSS, :WINDOW, :CUT

      Segment = Struct.new(:at, :bytes)
      private_constant :Segment

      # @param connection [Connection]
      # @param name [String] for the trace
      # @param from [Connection::Side] where the bytes come from
      # @param to [Connection::Side] where they go
      def initialize(connection, name, from, to)
        @connection, @name, @from, @to = connection, name, from, to
        @world, @host = connection.world, connection.host
        @faults = @world.faults_of(name)
        @queue = []
        @in_flight = 0
        @free_at = @last_at = 0
      end

      # Returns when the sender's end has arrived, or the connection is over.
      def run
        loop do
          deliver(@queue.shift) while @queue.first && @queue.first.at <= Core.now
          break if @over && @queue.empty?

          wait
        end
      end

      private

      def wait
        pause = [(@queue.first.at - Core.now) / 1e9, 0].max if @queue.first
        if @stalled || @over || @in_flight >= WINDOW
          sleep(*pause)
        elsif @from.far.wait_readable(pause)
          receive
        end
      end

      def receive
        case bytes = @from.far.read_nonblock(CHUNK, exception: false)
        when :wait_readable then nil
        when nil then enqueue_end
        else segments(bytes) { |segment| enqueue(segment) unless @stalled }
        end
      rescue Errno::ECONNRESET # closed before it has read all: TCP sends a reset
        @over = true
        @world.network.reset(@to)
      end

      def segments(bytes)
        at = 0
        random = @faults.random
        while at < bytes.bytesize
          size = [MSS, bytes.bytesize - at].min
          size = random.rand(1..size) if size > 1 && random.rand < CUT
          yield bytes.byteslice(at, size)
          at += size
        end
      end

      def enqueue_end
        @faults.next
        @over = true
        at = arrival(0) or return stall
        @queue << Segment.new(at, nil)
      end

      def enqueue(bytes)
        @faults.next
        case @host.link.fate(@faults)
        when :reset then return reset
        when :stall then stall
        end
        at = arrival(bytes.bytesize) or return stall
        @in_flight += bytes.bytesize
        @queue << Segment.new(at, bytes)
      end

      # Segments queue for the link, and none overtakes another one.
      def arrival(size)
        now = Core.now
        @free_at = [@free_at, now].max + @host.link.occupied(size)
        delay = @host.link.delay(@faults) or return
        @last_at = [@last_at, @free_at + delay].max
      end

      # What left before still arrives.
      def stall
        @world.note { "#{@name} stalls" }
        @stalled = true
      end

      def reset
        @world.note { "#{@name} reset" }
        @connection.reset_both
      end

      def deliver(segment)
        @world.pass(@host)
        @world.note { "#{@name} #{segment.bytes ? "#{segment.bytes.bytesize} bytes" : "end"}" }
        return @to.far.shutdown(Socket::SHUT_WR) unless segment.bytes

        @in_flight -= segment.bytes.bytesize
        write(segment.bytes)
      rescue Errno::EPIPE, Errno::ECONNRESET, Errno::ENOTCONN # the other side is closed: TCP answers with a reset
        @over = true
        @queue.clear
        @world.network.reset(@from)
      end

      def write(bytes)
        until bytes.empty?
          written = @to.far.write_nonblock(bytes, exception: false)
          (written == :wait_writable) ? @to.far.wait_writable : bytes = bytes.byteslice(written..)
        end
      end
    end
    private_constant :Pipe
  end
end
