# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # Tells the server to stop what a connection asked, by a connection of its own. From "Canceling Requests in
      # Progress" of PostgreSQL's manual (frontend/backend protocol).
      #
      # @api private
      module Cancel
        # Seconds that it may take, when the caller's own time is over.
        SECONDS = 1
        CODE = 80_877_102
        # The server is told also if the caller is interrupted a second time: it has one more second.
        NEVER = {Object => :never}.freeze
        private_constant :SECONDS, :CODE, :NEVER

        class << self
          # Raises no error: the caller has one to raise.
          #
          # @yield after the server has handled the cancel, within the same time. If the block raises DeadlineExceeded,
          #   the server is told again: the cancel came before the query, if the server was slow to begin that
          # @return the block's value; nil if the server did not confirm that it has handled the cancel
          def send(login)
            return unless login.process_id

            in_own_time do
              yield if ask(login) && block_given?
            rescue DeadlineExceeded
              ask(login)
              nil
            end
          end

          # Calls the block in time of its own, when the caller's is over.
          #
          # @return the block's value; nil if that time is over, too, or the server cannot be reached
          def in_own_time(&block)
            # In a thread with a scheduler a mask would be all its tasks', and tasks have the shield.
            return shielded(&block) if Fiber.current_scheduler

            Thread.handle_interrupt(NEVER) { shielded(&block) }
          end

          private

          # An exception of another kind is meant for the caller.
          def shielded(&block)
            Heddle.shield(SECONDS, &block)
          rescue Error, DeadlineExceeded, SystemCallError, IOError, SocketError, OpenSSL::OpenSSLError
            nil
          end

          # @return [Boolean] whether the server has handled the cancel: if the query still ran, it is being stopped
          def ask(login)
            stream = login.home.open
            return false if login.tls? && !login.encrypt(Protocol.new.open(stream, false), login.home)

            stream.write([12 + login.secret.bytesize, CODE, login.process_id].pack("NNN") + login.secret)
            stream.flush
            stream.read(1).nil? # the server closes once it has sent the signal
          ensure
            stream&.close
          end
        end
      end
      private_constant :Cancel
    end
  end
end
