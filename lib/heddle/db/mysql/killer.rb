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
      module Killer
        # Seconds that one server may take for all that it is told.
        TIME = 3

        # How many may wait to be told, and for how many seconds: of the rest nobody is told.
        MOST = 100
        OLDEST = 10
        private_constant :TIME, :MOST, :OLDEST

        # A connection whose request may still run: how to connect to its server (Hash), the server's number for it,
        # what tells it apart (see {Killer.marks}), and since when it waits to be told.
        Target = Struct.new(:options, :thread, :marks, :since) do
          # Without the password, which is among the options.
          def inspect = "#<Heddle::DB::MySQL::Killer::Target #{thread}>"
          alias_method :to_s, :inspect
        end
        private_constant :Target

        @queue = []
        @lock = Thread::Mutex.new
        @thread = nil
        @process = Process.pid

        class << self
          # @param options [Hash] as {Driver.connect} takes them
          # @param thread [Integer] the server's number for the connection
          # @param marks [Array] of the connection's socket, see {marks}
          def kill(options, thread, marks)
            return if marks.compact.empty?

            @lock.synchronize do
              forget_parents
              @queue << Target.new(options, thread, marks, now) if @queue.size < MOST
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
                Heddle.deadline(TIME) { tell(targets) }
              rescue Error, DeadlineExceeded, IOError, SystemCallError, SocketError, OpenSSL::SSL::SSLError
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
              targets, @queue = @queue.partition { |target| target.options == first.options }
              @thread = nil if targets.empty?
              targets
            end
          end

          def tell(targets)
            options = targets.first.options.merge(timeout: TIME, connect_timeout: TIME, session: false, kill_queries: true)
            driver = Driver.connect(**options)
            targets.each { |target| driver.command("KILL QUERY #{target.thread}") if runs_still?(driver, target) }
          ensure
            driver&.close
          end

          # Numbers are given in order: one above that of this connection was given before the server was started
          # anew.
          def runs_still?(driver, target)
            port, process = target.marks
            return false if target.thread >= driver.thread || (process && driver.marks != target.marks)

            mine = "LEFT(mine.host, CHAR_LENGTH(mine.host) - LOCATE(':', REVERSE(mine.host)))"
            found = driver.command("SELECT 1 FROM information_schema.processlist AS mine, " \
              "information_schema.processlist AS theirs WHERE mine.id = CONNECTION_ID() AND theirs.id = #{target.thread} " \
              "AND theirs.command <> 'Sleep'#{" AND theirs.host = CONCAT(#{mine}, ':#{port}')" if port}")
            found.is_a?(Result) && !found.empty?
          end
        end
      end
    end
  end
end
