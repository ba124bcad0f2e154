# frozen_string_literal: true

require "socket"
require_relative "../core/after_fork"

module Heddle
  class Processes
    # The parent's view of a worker.
    class Worker
      # While more bytes than this wait to be sent, the worker gets no items.
      OUTGOING = 1 << 20
      CHUNK = 1 << 16
      private_constant :OUTGOING, :CHUNK

      # This process's ends of all workers' sockets. No child may keep one open: the worker would then not see that its
      # parent has died. Nor may another thread fork between the creation of a socket pair and the close of its far end.
      @ends = {}.compare_by_identity
      # No Mutex: Ruby 4.0 aborts in a child that unlocks one for which another thread's task waited (doc/ruby.md). No
      # Queue with a permit in it: Thread#kill of the current thread and a trap handler's exception arrive in spite of
      # handle_interrupt, also between its pop and the next line, and nobody would give the permit back.
      @fork = Semaphore.new(1)

      class << self
        # Forks a worker.
        #
        # @param workers [Array<Worker>] gets the new worker, in the parent: right after the fork, even if an exception
        #   arrives then
        # @yieldparam socket [UNIXSocket] the child's end; called in the child, which ends with the block
        # @return [void]
        def start(workers, fibers)
          forks = Heddle.forks
          begin
            flush_output
            socket = fork_connected(workers, fibers)
            yield socket if socket
          ensure
            # Handles exceptions that interrupt a child before its work begins: no frame above this on the stack is the
            # child's. Exceptions before `forks` is set do not reach this line, where they would end the parent.
            exit!(1) unless Heddle.forks == forks
          end
        end

        # @api private
        def unregister(socket) = @ends.delete(socket)

        # Closes our copies of the parent's sockets in a child of fork, worker or not. While another process holds a
        # copy open, a worker does not see that its parent has ended.
        #
        # @api private
        def close_all
          @ends.each_key { |socket| socket.close unless socket.closed? }
          @ends.clear
        end

        # Call this before a fork, after which both processes would write the buffered bytes, and before `exit!`, which
        # would drop them.
        def flush_output
          [$stdout, $stderr, STDOUT, STDERR].uniq.each do |io| # rubocop:disable Style/GlobalStdStream
            io.flush
          rescue SystemCallError, IOError
            next # closed, or without a reader
          end
        end

        private

        # A fork takes milliseconds. Exceptions from other threads (a timeout, a kill) wait until the worker is in its
        # parent's list: an unlisted worker would live as long as its parent.
        #
        # @return [UNIXSocket, nil] the child's end, in the child
        def fork_connected(workers, fibers)
          Thread.handle_interrupt(Object => :never) do
            @fork.acquire do
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

      AfterFork.register { close_all }

      # @return [Integer]
      attr_reader :pid
      # @return [UNIXSocket]
      attr_reader :socket
      # @return [Hash{Integer => Object}] the worker's items
      attr_reader :items
      # @return [Process::Status, nil] nil until the process has ended
      attr_reader :status

      # @param descriptor [Integer] the connection's file descriptor in the worker
      def initialize(pid, socket, descriptor, fibers)
        @pid = pid
        @forks = Heddle.forks
        @socket = socket
        @descriptor = descriptor
        @fibers = fibers
        @items = {}
        @frames = Frames.new
        @received = String.new(capacity: CHUNK)
        drop_all
      end

      # @return [Boolean] whether the worker can take another item
      def room? = @items.size < @fibers && @outgoing.bytesize - @sent < OUTGOING

      # @return [Boolean] whether bytes wait to be sent
      def owed? = @sent < @outgoing.bytesize

      # Sends a run of items.
      #
      # @param first [Integer] the first one's number
      # @param contents [Array, Integer] see {Transfer}; or how many, of a list that the worker has
      def give(first, items, contents)
        items.each_with_index { |item, at| @items[first + at] = item }
        Frames.append([first, contents], @outgoing)
        flush
      end

      # Sends as many bytes as the socket accepts.
      def flush
        while owed?
          count = @socket.write_nonblock(@outgoing.byteslice(@sent, CHUNK), exception: false)
          return drop_sent if count == :wait_writable

          @sent += count
        end
        drop_all
      rescue Errno::EPIPE, Errno::ECONNRESET
        drop_all # reading tells that it is gone
      end

      # @return [String, :wait_readable, nil] nil when the worker closed the connection
      def receive
        @socket.read_nonblock(CHUNK, @received, exception: false)
      rescue Errno::ECONNRESET
        nil
      end

      # Adds received bytes, and yields each complete answer. The answer's item is no longer the worker's.
      #
      # @yieldparam index [Integer]
      # @yieldparam content [Object] see {Transfer}
      # @raise [WorkerLost] when the bytes are not an answer
      def answers(bytes)
        @frames.push(bytes) do |indexes, contents|
          raise Frames::Garbage, "it is a run of items" unless indexes.is_a?(Array)

          indexes.each_with_index do |index, at|
            @items.delete(index) do
              raise Frames::Garbage, "it answers item #{index}, which this worker does not have"
            end
            yield index, contents[at]
          end
        end
      rescue Frames::Garbage => error
        message = "worker process #{@pid} sent a malformed answer (#{error.message}; did a block write to file " \
          "descriptor #{@descriptor}, the worker's connection?) with #{burden}"
        raise WorkerLost.new(message, @items.values, @status), cause: nil
      end

      # Shuts the socket down, so that the worker reads the end of its work. A close alone does not reach the worker
      # while another child of this process has the socket, too. When such a child calls this, the worker must not
      # notice.
      def close
        Worker.unregister(@socket)
        return if @socket.closed?

        @socket.shutdown if @forks == Heddle.forks
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

      # @param name [Symbol] of the signal; a process that has ended gets none
      def signal(name)
        Process.kill(name, @pid) unless ended?
      rescue Errno::ESRCH
        nil
      end

      # Makes the process run its `ensure` blocks and end. A stopped process (SIGSTOP, Ctrl-Z) needs SIGCONT to get
      # SIGTERM.
      def terminate
        signal(:TERM)
        signal(:CONT)
      end

      # @return [WorkerLost] the error for a worker that ended too early
      def lost = WorkerLost.new("worker process #{@pid} #{ending} with #{burden}", @items.values, @status)

      private

      def drop_all
        @outgoing = String.new(encoding: Encoding::BINARY)
        @sent = 0
      end

      # A worker that always has more to get may never have got all. So much at a time that the rest costs no more to
      # copy.
      def drop_sent
        return if @sent < OUTGOING

        @outgoing = @outgoing.byteslice(@sent, @outgoing.bytesize)
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
        items = (@items.size == 1) ? "one item" : "#{@items.size} items"
        "#{items} in work, which may be partly done: #{names.join(", ")}"
      end
    end
  end
end
