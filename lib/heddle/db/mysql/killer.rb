# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # Tells servers to stop what was interrupted here, each by a connection of its own, since one that waits for an answer takes
      # no other question. In a thread that ends when there is nothing left to be told: whoever was interrupted must not wait
      # once more.
      module Killer
        # Seconds that a connection may take to say so.
        TIME = 3

        # How many may wait to be told; the rest finds out by itself that nobody listens.
        MOST = 100

        @queue = []
        @lock = Thread::Mutex.new
        @thread = nil

        class << self
          # @param options [Hash] as {Driver.connect} takes them
          # @param thread [Integer] the server's name for the connection
          def kill(options, thread)
            @lock.synchronize do
              @queue << [options, thread] if @queue.size < MOST
              next if @thread&.alive?

              @thread = Thread.new { work }
              @thread.name = "heddle kill query"
              @thread.report_on_exception = false
            end
          end

          private

          def work
            while (options, thread = @lock.synchronize { @queue.shift || (@thread = nil) })
              begin
                Heddle.deadline(TIME) do
                  driver = Driver.connect(**options, timeout: TIME, connect_timeout: TIME, session: false)
                  driver.command("KILL QUERY #{thread}")
                  driver.close
                end
              rescue Error, DeadlineExceeded, IOError, SystemCallError, SocketError
                next # it is unreachable, or has gone away: then there is nothing to stop
              end
            end
          end
        end
      end
    end
  end
end
