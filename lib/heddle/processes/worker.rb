# frozen_string_literal: true

require "socket"

module Heddle
  class Processes
    # A worker as its parent sees it.
    class Worker
      # Bytes that may wait to be sent before it gets no more items.
      OUTGOING = 1 << 20
      CHUNK = 1 << 16
      private_constant :OUTGOING, :CHUNK

      # Our ends of the sockets of all workers of this process. No child must keep one: the other end
      # would then not see that we are gone. Nor may a child of another thread be forked between the making of a pair and the
      # closing of its far end.
      @ends = {}.compare_by_identity
      @lock = Thread::Mutex.new

      class << self
        # Forks.
        #
        # @param workers [Array<Worker>] gets the new one, in the parent: as soon as there is one, and whatever strikes then
        # @yieldparam socket [UNIXSocket] the child's end; called in the child, which ends with it
        # @return [void]
        def start(workers, fibers)
          parent = Process.pid
          begin
            flush_output
            socket = fork_connected(workers, fibers)
            yield socket if socket
          ensure
            # Whatever strikes a child before it is at work: nothing of what is above it on the stack is its own. What strikes
            # before `parent` is known does not come here, where it would end the parent.
            exit!(1) unless Process.pid == parent
          end
        end

        # @api private
        def forget(socket) = @lock.synchronize { @ends.delete(socket) }

        # @api private In a child of fork, a worker or not: our ends are the parent's. With a copy of one open a worker would not
        # see that its parent is no more.
        def forget_all
          @ends.each_key { |socket| socket.close unless socket.closed? }
          @ends.clear
        end

        # Before a fork, after which both would write what is in these buffers, and before an exit! that would not.
        def flush_output
          [$stdout, $stderr, STDOUT, STDERR].uniq.each do |io| # rubocop:disable Style/GlobalStdStream
            io.flush
          rescue SystemCallError, IOError
            next # closed, or nobody reads it
          end
        end

        private

        # A fork takes milliseconds. What another thread raises in this one meanwhile (a timeout, a kill) waits until the worker
        # is in its parent's list: one that nobody knows would stay for as long as the parent.
        #
        # @return [UNIXSocket, nil] the child's end, in the child
        def fork_connected(workers, fibers)
          @lock.synchronize do
            Thread.handle_interrupt(Object => :never) do
              ours, theirs = UNIXSocket.pair
              begin
                Heddle.hold_signals(true) # the child lets go of them, see Child#set_signals
                pid = fork
                forked = true
                if pid
                  @ends[ours] = true
                  workers << new(pid, ours, theirs.fileno, fibers)
                end
              ensure
                Heddle.hold_signals(false) if pid || !forked
                ours.close unless pid
                theirs.close if pid || !forked
              end
              theirs unless pid
            end
          end
        end
      end

      # In front of Process._fork, through which every fork of Ruby code goes.
      #
      # @api private
      module AfterFork
        def _fork
          super.tap { |pid| Worker.forget_all if pid.zero? }
        end

        Process.singleton_class.prepend(self)
      end
      private_constant :AfterFork

      # @return [Integer]
      attr_reader :pid
      # @return [UNIXSocket]
      attr_reader :socket
      # @return [Hash{Integer => Object}] the items that it has
      attr_reader :items
      # @return [Process::Status, nil] once it has ended
      attr_reader :status

      # @param descriptor [Integer] the number that its end of the connection has in the worker
      def initialize(pid, socket, descriptor, fibers)
        @pid = pid
        @parent = Process.pid
        @socket = socket
        @descriptor = descriptor
        @fibers = fibers
        @items = {}
        @frames = Frames.new
        @outgoing = String.new(encoding: Encoding::BINARY)
        @sent = 0
      end

      # @return [Boolean] whether it can have another item
      def room? = @items.size < @fibers && @outgoing.bytesize - @sent < OUTGOING

      # @return [Boolean] whether something is left to be sent
      def owed? = @sent < @outgoing.bytesize

      # Takes the item in; {#flush} sends it.
      def give(index, item, payload)
        @items[index] = item
        @outgoing << Frames.header(Frames::ITEM, index, payload) << payload
      end

      # Sends what the socket takes.
      def flush
        while owed?
          count = @socket.write_nonblock(@outgoing.byteslice(@sent, CHUNK), exception: false)
          return if count == :wait_writable

          @sent += count
        end
        forget_sent
      rescue Errno::EPIPE, Errno::ECONNRESET
        forget_sent # reading tells that it is gone
      end

      # @return [String, :wait_readable, nil] nil when it is gone
      def receive
        @socket.read_nonblock(CHUNK, exception: false)
      rescue Errno::ECONNRESET
        nil
      end

      # Takes in what was received, and yields the answers that are complete. Each is to an item that it had until then.
      #
      # @yieldparam kind [Integer] Frames::VALUE or Frames::ERROR
      # @yieldparam index [Integer]
      # @yieldparam payload [String]
      # @raise [WorkerLost] when something else has come
      def answers(bytes)
        @frames.push(bytes) do |kind, index, payload|
          raise Frames::Garbage, "it is of kind #{kind}" unless kind == Frames::VALUE || kind == Frames::ERROR
          raise Frames::Garbage, "it is for item #{index}, which this worker does not have" unless @items.key?(index)

          @items.delete(index)
          yield kind, index, payload
        end
      rescue Frames::Garbage => error
        raise WorkerLost.new("worker process #{@pid} sent what is no answer (#{error.message}; did a block write to its file " \
          "descriptor #{@descriptor}, which is its connection?) with #{burden}", @items.values, @status), cause: nil
      end

      # Its reading end then tells the worker that there is nothing more to do. Closing does not, while some other child of
      # this process has the socket, too; and what such a child does itself must not reach the worker.
      def close
        return if @socket.closed?

        Worker.forget(@socket)
        @socket.shutdown if @parent == Process.pid
      rescue Errno::ENOTCONN
        nil # it is gone
      ensure
        @socket.close
      end

      # @return [Boolean] whether the process has ended, and left no zombie
      def ended?
        return true if @reaped

        @reaped = Process.wait2(@pid, Process::WNOHANG)
        @status = @reaped.last if @reaped
        !!@reaped
      rescue Errno::ECHILD
        @reaped = true # somebody else waits for all children of this process
      end

      # @param name [Symbol] of the signal; nothing happens to one that has ended
      def signal(name)
        Process.kill(name, @pid) unless ended?
      rescue Errno::ESRCH
        nil
      end

      # Has it run its `ensure` blocks and end. One that is stopped (SIGSTOP, Ctrl-Z) gets no SIGTERM before it goes on.
      def terminate
        signal(:TERM)
        signal(:CONT)
      end

      # @return [WorkerLost] that it has ended when it should not have
      def lost = WorkerLost.new("worker process #{@pid} #{ending} with #{burden}", @items.values, @status)

      private

      def forget_sent
        @outgoing = String.new(encoding: Encoding::BINARY)
        @sent = 0
      end

      def ending
        return "has closed its connection" unless @status
        return "was killed by SIG#{Signal.signame(@status.termsig)}" if @status.signaled?

        "ended with status #{@status.exitstatus}"
      end

      LISTED = 10
      private_constant :LISTED

      def burden
        return "no item in work" if @items.empty?

        names = @items.first(LISTED).map { |index, item| Transfer.label(index, item) }
        names << "#{@items.size - LISTED} more" if @items.size > LISTED
        "#{(@items.size == 1) ? "one item" : "#{@items.size} items"} in work, which may have been done in part: #{names.join(", ")}"
      end
    end
  end
end
