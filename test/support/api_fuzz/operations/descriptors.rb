# frozen_string_literal: true

require "socket"

module ApiFuzz
  module Operations
    # Pipes, sockets and names.
    module Descriptors
      def operation_pipe
        reader, writer = IO.pipe
        helper = Thread.new { sleep(moment) && writer.write("x") } if chance(0.5)
        task = assist { writing_in(moment, writer) } if !helper && task?
        writer.write("x") unless helper || task
        byte = waiting("a byte in a pipe", -> { reader.wait_readable(0) }) { reader.readpartial(10) }
        expect(byte == "x", "a pipe gave #{byte.inspect}")
      ensure
        task&.cancel
        helper&.kill
        [reader, writer].each { |io| io&.close }
      end

      def operation_socket
        pair = UNIXSocket.pair
        return unless task?

        echo = assist { echoing(2, pair[1]) }
        2.times do |index|
          pair[0].write("line #{index}\n")
          line = pair[0].gets
          expect(line == "line #{index}\n", "a socket gave #{line.inspect}") unless echo.ended?
        end
      ensure
        echo&.cancel
        pair&.each(&:close)
      end

      def operation_close_under_a_reader
        return unless task?

        pair = UNIXSocket.pair
        pause = moment
        assist { closing_in(pause, pair[0]) }
        begin
          waiting("a socket's close", -> { pair[0].closed? }) { pair[0].read(1) }
          expect(false, "a read of a closed socket has ended without an error")
        rescue IOError
          nil
        end
      ensure
        pair&.each(&:close)
      end

      def operation_reopen_under_a_reader
        return unless task?

        reader, writer = IO.pipe
        other, rest = IO.pipe
        pause = moment
        assist { reopening_in(pause, reader, other) }
        begin
          waiting("a pipe's reopen", -> { reader.closed? }) { reader.read(1) }
        rescue IOError
          nil
        end
      ensure
        [reader, writer, other, rest].each { |io| io&.close }
      end

      def operation_close_by_a_thread
        pair = UNIXSocket.pair
        pause = moment
        helper = Thread.new { sleep(pause) && pair[0].close }
        begin
          waiting("a close by another thread", -> { pair[0].closed? }) { pair[0].read(1) }
          expect(false, "a read of a socket that a thread closed has ended without an error")
        rescue IOError
          nil
        end
      ensure
        helper&.join
        pair&.each(&:close)
      end

      def operation_connect
        accepted = socket = nil
        host = chance(0.5) ? "localhost" : "127.0.0.1"
        Heddle.deadline(10) do
          socket = TCPSocket.new(host, round.port)
          socket.write("hello\n")
          line = waiting("the echo", -> { false }) { socket.gets }
          expect(line == "hello\n", "the server answered #{line.inspect}") if line
        end
      ensure
        [socket, accepted].each { |io| io&.close }
      end

      def operation_names
        found = Addrinfo.getaddrinfo("localhost", 80, nil, :STREAM)
        expect(found.any?(&:ip?), "localhost has no address")
      end

      def operation_select
        reader, writer = IO.pipe
        writer.write("x") if (written = chance(0.5))
        limit = moment
        due = now + limit
        ready = waiting("a pipe or #{limit} s", -> { written || now > due }) { IO.select([reader], nil, nil, limit) }
        expect(written ? ready == [[reader], [], []] : ready.nil?, "select gave #{ready.inspect}")
      ensure
        [reader, writer].each { |io| io&.close }
      end

      def operation_nonblocking
        pair = UNIXSocket.pair
        nothing = pair[0].read_nonblock(1, exception: false)
        expect(nothing == :wait_readable, "read_nonblock gave #{nothing.inspect}")
        pair[1].write_nonblock("x")
        something = pair[0].read_nonblock(1)
        expect(something == "x", "read_nonblock gave #{something.inspect}")
      ensure
        pair&.each(&:close)
      end

      private

      # Somebody may cancel these tasks, so nobody may wait for them.
      def writing_in(seconds, writer)
        sleep(seconds)
        writer.write("x")
      rescue Heddle::Cancellation
        writer.close
        raise
      end

      def echoing(lines, socket)
        lines.times { socket.write(socket.gets) }
      ensure
        socket.close
      end

      # Closes it as well: the reader may read only then, from the other pipe.
      def reopening_in(seconds, reader, other)
        sleep(seconds)
        reader.reopen(other)
      ensure
        sleep(0)
        reader.close
      end

      def closing_in(seconds, socket)
        sleep(seconds)
      ensure
        socket.close
      end
    end
  end
end
