# frozen_string_literal: true

require_relative "../core/full_message"

module Heddle
  class Processes
    # The code that runs in a worker process.
    class Child
      CHUNK = 1 << 16
      # The most seconds for which an answer waits for others while the loop goes on.
      GATHERING = 0.001
      # Seconds of a sleep that ends with the next poll of the loop, which does not wait for it.
      POLL = 1e-9
      private_constant :CHUNK, :GATHERING, :POLL

      # The parent closed its end of the socket, or has died.
      class Dismissed < Exception # rubocop:disable Lint/InheritException -- no other code may rescue it
      end
      private_constant :Dismissed

      # @param list [List, nil] items that are not sent here, only their numbers
      # @param deadline [Float, nil] of the call in the parent, by the monotonic clock
      def initialize(socket, list:, fibers:, keep:, deadline:, block:)
        @socket = socket
        @list = list
        @fibers = fibers
        @keep = keep
        @deadline = deadline
        @block = block
        @frames = Frames.new
        @unanswered = 0
        begin_answer
        @changed = EventCount.new
        @sent = EventCount.new
      end

      # Works until the parent closes the socket, and ends the process.
      def run
        status = 1
        set_signals
        drop_scheduler
        Heddle.unlimited_shield { serve } # a deadline that the thread had in the parent is for the items
        status = 0
      rescue Dismissed
        status = 0
      rescue SystemExit => error
        status = error.status
      rescue SignalException => error
        signal = error.signo
      rescue Exception => error # rubocop:disable Lint/RescueException -- it must not reach the parent's frames
        $stderr.write(FullMessage[error])
      ensure
        exit_process(status, signal)
      end

      private

      # A handler, unlike "IGNORE", is not inherited by programs that a worker runs. A service manager often sends
      # SIGTERM to all processes of a service, and the parent sends another: the second would interrupt the clean-up
      # after the first.
      def set_signals
        trap("INT") {}
        trap("TERM") { ignore_term && raise(SignalException, "SIGTERM") }
        Heddle.hold_signals(false)
      end

      def ignore_term = trap("TERM") {}

      # Before Ruby 4.0 a child keeps the scheduler of its thread; {RubyFixes::Fork} drops a {Scheduler}. Closing
      # another scheduler here would run the parent's fibers.
      def drop_scheduler
        scheduler = Fiber.scheduler
        return unless scheduler

        %i[scheduler_close close].each { |name| scheduler.define_singleton_method(name) {} }
        Fiber.set_scheduler(nil)
      end

      def serve
        Heddle.run do
          pool = FiberPool.new(@fibers)
          Heddle.spawn { send_answers }
          loop do
            @frames.push(receive) do |first, contents|
              contents = @list[first, contents] if contents.is_a?(Integer)
              @unanswered += contents.size
              contents.each.with_index(first) { |content, index| pool.spawn { perform(index, content) } }
            end
          end
        end
      end

      def receive
        @socket.readpartial(CHUNK)
      rescue EOFError, Errno::ECONNRESET
        ignore_term
        raise Dismissed
      end

      def perform(index, content)
        begin
          item = Transfer.load(content)
          value = @deadline ? Heddle.deadline([@deadline - Clock.now, 0].max) { @block.call(item) } : @block.call(item)
          answer = (Transfer.dump_value(value, index, item) if @keep)
        rescue Cancellation, SystemExit, SignalException
          raise # the worker ends
        rescue Exception => error # rubocop:disable Lint/RescueException -- raised in the parent
          answer = Transfer.dump_error(error, index, item)
        end
        reply(index, answer)
      end

      # While the parent does not read, the items' fibers wait here.
      def reply(index, answer)
        while (seen = @sent.count) && @bytesize >= CHUNK
          @sent.wait(seen)
        end
        @indexes << index
        @contents << answer
        @bytesize += Transfer.bytesize(answer)
        @changed.advance
      end

      def send_answers
        loop do
          while (seen = @changed.count) && @indexes.empty?
            @changed.wait(seen)
          end
          gather
          bytes = Frames.append([@indexes, @contents], String.new(encoding: Encoding::BINARY))
          @unanswered -= @indexes.size
          begin_answer
          @sent.advance
          @socket.write(bytes)
        end
      rescue Errno::EPIPE, Errno::ECONNRESET
        nil # reading tells the same
      end

      # A frame wakes the parent, whatever it carries. So answers wait for others while items end with each poll of the
      # loop, and a third of the items is still in work: this worker must have enough to do until it gets more.
      def gather
        limit = Clock.now + GATHERING
        gathered = 0
        while @indexes.size > gathered && 3 * @indexes.size < 2 * @unanswered && Clock.now < limit
          gathered = @indexes.size
          sleep(POLL)
        end
      end

      def begin_answer
        @indexes = []
        @contents = []
        @bytesize = 0
      end

      # Skips the at_exit handlers, which are the parent's.
      def exit_process(status, signal)
        Worker.flush_output
        if signal
          trap(signal, "SYSTEM_DEFAULT")
          Process.kill(signal, Process.pid)
          sleep(1)
        end
      ensure
        exit!(status)
      end
    end
  end
end
