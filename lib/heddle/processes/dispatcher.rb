# frozen_string_literal: true

module Heddle
  class Processes
    # One call: starts the workers, deals out the items, collects the answers, and ends the workers.
    #
    # All of it happens in the caller's own fiber, which waits for all sockets at once. IO.select calls the scheduler,
    # if one is active.
    class Dispatcher
      # Seconds between checks for dead workers whose socket a child of theirs still holds open.
      LOOK = 1.0

      FIRST_PAUSE = 0.0005
      LONGEST_PAUSE = 0.02
      KILLED = 1.0
      private_constant :FIRST_PAUSE, :LONGEST_PAUSE, :KILLED

      # @param processes [Processes]
      # @param block [Proc] called with each item, in a worker
      # @param keep [Boolean] whether the values are sent back
      # @param keep_errors [Boolean] whether an item's StandardError leaves the other items alone
      # @param room [#call, nil] returns whether another item may be taken
      def initialize(processes, block, keep:, keep_errors: false, room: nil)
        @processes = processes
        @block = block
        @keep = keep
        @keep_errors = keep_errors
        @room = room
        @workers = []
        @taken = @answered = 0
        @look_at = Clock.now + LOOK
      end

      # @param items [#each] values that `each` yields at once are one item, an Array
      # @yieldparam index [Integer] of an item
      # @yieldparam content [Object] its value, for Transfer.load_value
      # @yieldparam error [StandardError, nil] in place of the value
      def run(items, &collect)
        @collect = collect || ->(_, _, _) {}
        items.to_enum.each_entry { |item| take(item, items) }
        step while @answered < @taken
        done = true
      ensure
        finish(done)
      end

      private

      # An Array yields its next item at once: as many items as fit go in one frame, which wakes the worker once. Any
      # other source may wait long for its next item, and this item must not wait with it.
      def take(item, items)
        index = @taken
        content = Transfer.dump_item(item, index)
        start_workers(items) if @workers.empty?
        step until (worker = idlest) && (!@room || @room.call(index))
        worker.give(index, item, content)
        worker.flush unless items.is_a?(Array)
        @taken += 1
      end

      # Forks all workers at once, so that all see the same state of the program.
      def start_workers(items)
        known = items.respond_to?(:size) && items.size
        count = @processes.count
        count = known if known.is_a?(Integer) && known.between?(1, count)
        deadline = Heddle.remaining&.+(Clock.now)
        count.times do
          Worker.start(@workers, @processes.fibers) do |socket|
            Child.new(socket, fibers: @processes.fibers, keep: @keep, deadline: deadline, block: @block).run
          end
        end
      end

      # The worker that has the fewest items. It stays the same one until it has more than the next, or answers come.
      def idlest
        unless @idlest && @idlest.items.size <= @next_fewest
          @idlest, following = @workers.min_by(2) { |worker| worker.items.size }
          @next_fewest = following ? following.items.size : @processes.fibers
        end
        @idlest if @idlest.room?
      end

      # Sends what the sockets take, waits until something can be sent or received, and receives it.
      def step
        @idlest = nil
        @workers.each(&:flush)
        sockets = @workers.to_h { |worker| [worker.socket, worker] }
        readable = readable_among(sockets.keys)
        readable&.each { |socket| receive(sockets[socket]) }
        look(readable) if Clock.now >= @look_at
      end

      # In a plain thread, IO.select raises EBADF instead of IOError when another thread closes a socket after Ruby has
      # looked at it and before the kernel does.
      def readable_among(sockets)
        IO.select(sockets, @workers.select(&:owed?).map(&:socket), nil, LOOK)&.first
      rescue Errno::EBADF
        raise IOError, "closed stream" if sockets.any?(&:closed?)

        raise
      end

      def receive(worker)
        bytes = worker.receive
        return if bytes == :wait_readable
        return lose(worker) unless bytes

        worker.answers(bytes) do |kind, index, content|
          error = Transfer.load_error(content, caller) if kind == Frames::ERROR
          raise error if error && !(@keep_errors && error.is_a?(StandardError))

          @answered += 1
          @collect.call(index, content, error)
        end
      end

      # Answers that a worker sent before its end count.
      def look(readable)
        @look_at = Clock.now + LOOK
        dead = @workers.find { |worker| !readable&.include?(worker.socket) && worker.ended? }
        lose(dead) if dead
      end

      # The worker's socket is closed: the worker has ended, or is about to.
      def lose(worker)
        await([worker], KILLED)
        raise worker.lost
      end

      # An idle worker ends when its socket is closed; the others need a signal.
      def finish(done)
        Heddle.shield(GRACE + KILLED) do
          done ? @workers.each(&:close) : @workers.each(&:terminate)
          await(@workers, GRACE)
        end
      ensure
        # A deadline that has passed ends every wait, even for the lock that guards the sockets.
        Heddle.shield(2 * KILLED) do
          @workers.each(&:close)
          kill(@workers.reject(&:ended?))
        end
      end

      def kill(workers)
        workers.each { |worker| worker.signal(:KILL) }
        await(workers, KILLED)
      ensure
        # A worker that the kernel cannot end yet must not delay the caller, nor stay a zombie.
        workers.each { |worker| Process.detach(worker.pid) unless worker.ended? }
      end

      # @return [Boolean] whether all workers ended within these seconds
      def await(workers, seconds)
        limit = Clock.now + seconds
        pause = FIRST_PAUSE
        until workers.all?(&:ended?)
          return false if Clock.now > limit

          sleep(pause)
          pause = [pause * 2, LONGEST_PAUSE].min
        end
        true
      end
    end
  end
end
