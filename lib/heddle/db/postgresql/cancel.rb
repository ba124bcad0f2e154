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
          # Raises no error: the caller has one to raise.
          #
          # @yield after the server has handled the cancel, within the same time
          # @return the block's value; nil if the server did not confirm that it has handled the cancel
          def send(login)
            return unless login.process_id

            Heddle.shield(SECONDS) { yield if ask(login) && block_given? }
          rescue
            nil
          end

          private

          # @return [Boolean] whether the server has handled the cancel: if the query still ran, it is being stopped
          def ask(login)
            stream = login.home.open
            return false if login.tls? && !login.encrypt(Link.new.open(stream, false), login.home)

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
