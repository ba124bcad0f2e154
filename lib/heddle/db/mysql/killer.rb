# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # Tells servers to stop interrupted queries (KILL QUERY). Each needs a second connection, since a connection that
      # waits for an answer cannot send another request. A thread does this, and ends when no query is left: the
      # interrupted caller must not wait again.
      #
      # The second connection may reach another server (behind a balancer), or the same server after a restart, where
      # the number for KILL belongs to another client. So it kills only after the server has shown that it still runs a
      # request of that very connection: with that number, from the same host, and from our socket's port. For a UNIX
      # socket, which has no port, the server's process must be the same.
      #
      # @api private also for the connections of other gems
      module Killer
        # Seconds for all kills on one server.
        TIME = 3

        # The most kills that wait, and their longest wait in seconds; others are dropped.
        MOST = 100
        OLDEST = 10

        # Seconds for a lock that is held for microseconds, perhaps by a thread that gets no processor.
        LOCK_SECONDS = 60
        NEVER = {Object => :never}.freeze
        private_constant :TIME, :MOST, :OLDEST, :LOCK_SECONDS, :NEVER

        # A connection whose request may still run: its server, the server's number for it, what tells it apart (see
        # {Killer.marks}), and since when it waits to be told.
        Target = Struct.new(:server, :thread, :marks, :since)
        private_constant :Target

        @queue = []
        @lock = Thread::Mutex.new
        @thread = nil
        @forks = Heddle.forks

        class << self
          # @param server [#connect] makes another connection to the same server within the given seconds. The
          #   connection has +thread+, +marks+, +command(sql)+ and +close+; +failures+ are the errors that `connect`
          #   raises when the server cannot be reached. Equal objects mean the same server
          # @param thread [Integer] the server's number for the connection
          # @param marks [Array] of the connection's socket, see {marks}
          def kill(server, thread, marks)
            return if marks.compact.empty?

            target = Target.new(server, thread, marks, Clock.now)
            return enqueue(target) if Fiber.current_scheduler

            Thread.handle_interrupt(NEVER) { enqueue(target) } # also if the caller is interrupted a second time
          end

          # The properties by which the server can identify a connection.
          #
          # @param socket [IO]
          # @return [(Integer, nil), (nil, Integer), (nil, nil)] our port, or the process of a server at a UNIX socket
          def marks(socket)
            address = socket.local_address
            return [address.ip_port, nil] if address.ip?

            return [nil, nil] unless Socket.const_defined?(:SO_PEERCRED)

            process, = socket.getsockopt(:SOCKET, :PEERCRED).unpack("i")
            [nil, (process if process > 0)] # 0: it is not one of those that this process can see
          rescue SystemCallError, SocketError
            [nil, nil]
          end

          private

          # In a shield: the deadline that interrupted the query would end the wait for the lock, too.
          def enqueue(target)
            Heddle.shield(LOCK_SECONDS) { @lock.synchronize { add(target) } }
          end

          def add(target)
            discard_parents
            @queue << target if @queue.size < MOST
            return if @thread&.alive?

            @thread = Thread.new { Heddle.background_thread { work } }
            @thread.name = "heddle kill query"
            @thread.report_on_exception = false
          end

          # The pending kills are those of the parent process, which sends them itself.
          def discard_parents
            return if @forks == Heddle.forks

            @forks = Heddle.forks
            @queue.clear
            @thread = nil
          end

          def work
            until (targets = next_targets).empty?
              begin
                Heddle.deadline(TIME) { tell(targets.first.server, targets) }
              rescue DeadlineExceeded, IOError, SystemCallError, SocketError, *targets.first.server.failures
                next # it is unreachable, or has gone away: then there is nothing to stop
              end
            end
          end

          # All that one server is to be told.
          def next_targets
            @lock.synchronize do
              oldest = Clock.now - OLDEST
              @queue.reject! { |target| target.since < oldest }
              first = @queue.first
              targets, @queue = @queue.partition { |target| target.server == first.server }
              @thread = nil if targets.empty?
              targets
            end
          end

          def tell(server, targets)
            killing = server.connect(TIME)
            targets.each { |target| killing.command("KILL QUERY #{target.thread}") if runs_still?(killing, target) }
          ensure
            killing&.close
          end

          # The server numbers connections in order. A target with a higher number than this newer connection was made
          # before the server restarted.
          def runs_still?(killing, target)
            port, process = target.marks
            return false if target.thread >= killing.thread || (process && killing.marks != target.marks)

            mine = "LEFT(mine.host, CHAR_LENGTH(mine.host) - LOCATE(':', REVERSE(mine.host)))"
            found = killing.command("SELECT 1 FROM information_schema.processlist AS mine, " \
              "information_schema.processlist AS theirs WHERE mine.id = CONNECTION_ID() " \
              "AND theirs.id = #{target.thread} " \
              "AND theirs.command <> 'Sleep'#{" AND theirs.host = CONCAT(#{mine}, ':#{port}')" if port}")
            !found.is_a?(ServerError) && !found.empty?
          end
        end
      end
    end
  end
end
