# frozen_string_literal: true

require_relative "../drivers"

module Heddle
  module ActiveRecordSupport
    # In front of ActiveRecord's adapters: a connection whose query was interrupted is proven clean, or closed and looked
    # at before it is used again. ActiveRecord gives it back to its pool as it is. On PostgreSQL the query still runs,
    # and whoever gets the connection waits for its end; mysql2 and Trilogy have closed theirs, which ActiveRecord does not
    # notice where what has struck is no StandardError.
    #
    # @api private
    module Adapter
      # What was done with its raw connection comes back to the pool with it.
      #
      # @api private for {Returns}
      def heddle_returned
        heddle_verify_first unless Drivers.of(@raw_connection).clean?(@raw_connection)
      end

      private

      # Not a rescue: Timeout.timeout of Ruby 3.1 leaves by a throw.
      def with_raw_connection(...)
        before = $!
        done = false
        value = Drivers.of(@raw_connection).query { super }
        done = true
        value
      ensure
        unless done
          error = $!.equal?(before) ? nil : $!
          heddle_verify_first unless Drivers.of(@raw_connection).settled?(@raw_connection, error)
        end
      end

      def heddle_verify_first
        @verified = false
        @last_activity = nil
      end
    end

    # In front of the adapters whose connections have to be prepared.
    #
    # @api private
    module Preparation
      private

      # Each new connection comes here.
      def configure_connection
        super
        Drivers.of(@raw_connection).prepare(@raw_connection) { @config }
      end
    end

    # In front of ActiveRecord's ConnectionPool.
    #
    # @api private
    module Returns
      def checkin(connection)
        connection.heddle_returned
        super
      end
    end
    private_constant :Adapter, :Preparation, :Returns
  end
end
