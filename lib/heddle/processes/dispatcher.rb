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
      # @param room [#call, nil] is called with how many items were taken, and returns how many more may be
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
        if (list = List.of(items))
          deal_list(list, items)
        else
          items.to_enum.each_entry { |item| deal_item(item, items) }
        end
        step while @answered < @taken
        done = true
      ensure
        finish(done)
      end

      private

      # The workers have the list; elements that were appended to an Array after the fork are sent.
      def deal_list(list, items)
        start_workers(list, list) if list.size.positive?
        while @taken < list.size
          share_out(list.size - @taken) { |worker, count| worker.give(@taken, list[@taken, count], count) }
        end
        deal_item(items[@taken], items) while @taken < items.size
      end

      # The source may wait long for its next item, and this item must not wait with it.
      def deal_item(item, items)
        index = @taken
        content = Transfer.dump_item(item, index)
        start_workers(items) if @workers.empty?
        share_out(1) { |worker, _| worker.give(index, [item], [content]) } while @taken == index
      end

      # Forks all workers at once, so that all see the same state of the program.
      #
      # @param list [List, nil] items that the workers then have
      def start_workers(items, list = nil)
        known = items.respond_to?(:size) && items.size
        count = @processes.count
        count = known if known.is_a?(Integer) && known.between?(1, count)
        deadline = Heddle.remaining&.+(Clock.now)
        count.times do
          Worker.start(@workers, @processes.fibers) do |socket|
            Child.new(socket, list: list, fibers: @processes.fibers, keep: @keep, deadline: deadline, block: @block).run
          end
        end
        @by_socket = @workers.to_h { |worker| [worker.socket, worker] }
      end

      # Gives the worker that has the fewest items a run of those available, or makes a step if no worker may get any.
      # The run is an equal share: it never gives that worker more items than each would have if all had the same.
      #
      # @yieldparam worker [Worker]
      # @yieldparam count [Integer] how many items it is to get
      def share_out(available)
        workers = @workers.select(&:room?)
        available = [available, @room.call(@taken)].min if @room
        return step if workers.empty? || !available.positive?

        worker = workers.min_by { |candidate| candidate.items.size }
        count = [available.fdiv(workers.size), @processes.fibers - worker.items.size].min.ceil
        yield worker, count
        @taken += count
      end

      # Sends what the sockets take, waits until something can be sent or received, and receives it.
      def step
        @workers.each { |worker| worker.flush if worker.owed? }
        readable = readable_among(@by_socket.keys)
        readable&.each { |socket| receive(@by_socket[socket]) }
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

        worker.answers(bytes) do |index, content|
          error = Transfer.load_error(content, caller) if content.is_a?(Transfer::Failure)
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
