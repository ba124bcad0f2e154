# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # Tells servers to stop what was interrupted here, each by a connection of its own, since one that waits for an
      # answer takes no other question. In a thread that ends when there is nothing left to be told: whoever was
      # interrupted must not wait once more.
      #
      # A connection of ours may lead to another server than the one that was asked (a balancer), or to the same one
      # after a restart, and the number that KILL takes then belongs to somebody else. So nothing is killed before the
      # server has shown that it still runs a request of that very connection: of that number, from the same host, and
      # from the port that our socket had. Of a UNIX socket, which has no port, the server's process must be the same
      # one.
      #
      # @api private also for the connections of other gems
      module Killer
        # Seconds that one server may take for all that it is told.
        TIME = 3

        # How many may wait to be told, and for how many seconds: of the rest nobody is told.
        MOST = 100
        OLDEST = 10
        private_constant :TIME, :MOST, :OLDEST

        # A connection whose request may still run: its server, the server's number for it, what tells it apart (see
        # {Killer.marks}), and since when it waits to be told.
        Target = Struct.new(:server, :thread, :marks, :since)
        private_constant :Target

        @queue = []
        @lock = Thread::Mutex.new
        @thread = nil
        @process = Process.pid

        class << self
          # @param server [#connect] makes another connection to the same server, in so many seconds: one that has +thread+,
          #   +marks+, +command(sql)+ and +close+. Its +failures+ are what that raises where the server cannot be reached.
          #   Servers that are the same are equal
          # @param thread [Integer] the server's number for the connection
          # @param marks [Array] of the connection's socket, see {marks}
          def kill(server, thread, marks)
            return if marks.compact.empty?

            @lock.synchronize do
              forget_parents
              @queue << Target.new(server, thread, marks, now) if @queue.size < MOST
              next if @thread&.alive?

              @thread = Thread.new { work }
              @thread.name = "heddle kill query"
              @thread.report_on_exception = false
            end
          end

          # What the server can tell a connection by.
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

          # What is waiting was interrupted in the process that this one was forked from, which has it told itself.
          def forget_parents
            return if @process == Process.pid

            @process = Process.pid
            @queue.clear
            @thread = nil
          end

          def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

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
              oldest = now - OLDEST
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

          # Numbers are given in order: one above that of this connection was given before the server was started
          # anew.
          def runs_still?(killing, target)
            port, process = target.marks
            return false if target.thread >= killing.thread || (process && killing.marks != target.marks)

            mine = "LEFT(mine.host, CHAR_LENGTH(mine.host) - LOCATE(':', REVERSE(mine.host)))"
            found = killing.command("SELECT 1 FROM information_schema.processlist AS mine, " \
              "information_schema.processlist AS theirs WHERE mine.id = CONNECTION_ID() AND theirs.id = #{target.thread} " \
              "AND theirs.command <> 'Sleep'#{" AND theirs.host = CONCAT(#{mine}, ':#{port}')" if port}")
            !found.is_a?(ServerError) && !found.empty?
          end
        end
      end
    end
  end
end
