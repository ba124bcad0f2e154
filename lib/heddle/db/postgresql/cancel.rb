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
        private_constant :SECONDS, :CODE

        class << self
          # Never raises what the connection raises: the caller has an error of its own.
          def send(settings, login)
            return unless login.process_id

            Heddle.shield(SECONDS) { ask(settings, login) }
          rescue Error, SystemCallError, SocketError, IOError, OpenSSL::SSL::SSLError, DeadlineExceeded
            nil
          end

          private

          def ask(settings, login)
            stream = login.home.open
            return if login.tls? && !Login.tls(Link.new.open(stream, false), login.home, settings)

            stream.write([12 + login.secret.bytesize, CODE, login.process_id].pack("NNN") + login.secret)
            stream.flush
            stream.read(1) # the server closes when it has done so
          ensure
            stream&.close
          end
        end
      end
      private_constant :Cancel
    end
  end
end
