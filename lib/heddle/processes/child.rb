# frozen_string_literal: true

module Heddle
  class Processes
    # The code that runs in a worker process.
    class Child
      CHUNK = 1 << 16
      private_constant :CHUNK

      # The parent closed its end of the socket, or has died.
      class Dismissed < Exception # rubocop:disable Lint/InheritException -- no other code may rescue it
      end
      private_constant :Dismissed

      # @param deadline [Float, nil] of the call in the parent, by the monotonic clock
      def initialize(socket, fibers:, keep:, deadline:, block:)
        @socket = socket
        @fibers = fibers
        @keep = keep
        @deadline = deadline
        @block = block
        @frames = Frames.new
        @replies = Frames::Run.new
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
        $stderr.write(error.full_message(highlight: false))
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
          Heddle.spawn { send_replies }
          loop do
            @frames.push(receive) do |kind, index, content|
              raise Frames::Garbage, "unknown kind #{kind}" unless kind == Frames::ITEM

              pool.spawn { perform(index, content) }
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
          kind = Frames::VALUE
        rescue Cancellation, SystemExit, SignalException
          raise # the worker ends
        rescue Exception => error # rubocop:disable Lint/RescueException -- raised in the parent
          answer = Transfer.dump_error(error, index, item)
          kind = Frames::ERROR
        end
        reply(kind, index, answer)
      end

      # Sends the answers of all items that end in one round of the loop in one frame, which wakes the parent once.
      # While the parent does not read, the items' fibers wait here.
      def reply(kind, index, content)
        while (seen = @sent.count) && @replies.bytesize >= CHUNK
          @sent.wait(seen)
        end
        @replies.add(kind, index, content)
        @changed.advance
      end

      def send_replies
        loop do
          while (seen = @changed.count) && @replies.empty?
            @changed.wait(seen)
          end
          bytes = @replies.move_to(String.new(encoding: Encoding::BINARY))
          @sent.advance
          @socket.write(bytes)
        end
      rescue Errno::EPIPE, Errno::ECONNRESET
        nil # reading tells the same
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
