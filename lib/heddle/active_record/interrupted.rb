# frozen_string_literal: true

require_relative "../integrations/database_gems"

module Heddle
  module ActiveRecordSupport
    # Prepended to ActiveRecord's adapters. After an interrupted query it proves the connection clean, or closes it and
    # has it verified before the next use. ActiveRecord alone returns the connection to its pool unchanged. On
    # PostgreSQL the query then still runs, and the next user of the connection waits for its end. mysql2 and Trilogy
    # close their connections, but ActiveRecord notices that only after a StandardError.
    #
    # @api private
    module Adapter
      # The state of the raw connection must be settled before the pool gets the connection back. Interrupted meanwhile
      # (a cancel of the query on the server waits), the connection is in no known state, and is closed.
      #
      # @api private for {Returns}
      def heddle_returned
        known = clean = false
        clean = DatabaseGems.of(@raw_connection).clean?(@raw_connection)
        known = true
      ensure
        heddle_verify_first unless clean
        DatabaseGems.of(@raw_connection).close(@raw_connection) unless known
      end

      # If the release of the savepoint was interrupted, it may have run: then this fails. ActiveRecord would raise that
      # in place of the interrupt.
      #
      # @api private
      def exec_rollback_to_savepoint(...)
        interrupt = $!
        super
      rescue ::ActiveRecord::StatementInvalid
        raise interrupt if interrupt && DatabaseGems.interrupted?(interrupt)

        raise
      end

      private

      # `ensure`, not `rescue`: Timeout.timeout of Ruby 3.1 leaves by a throw.
      def with_raw_connection(...)
        before = $!
        done = false
        value = DatabaseGems.of(@raw_connection).query { super }
        done = true
        value
      ensure
        unless done
          error = $!.equal?(before) ? nil : $!
          settled = DatabaseGems.of(@raw_connection).settled?(@raw_connection, error)
          heddle_verify_first unless settled && !heddle_left_open?
        end
      end

      # Whether an interrupted BEGIN began a transaction that ActiveRecord does not know of. Later changes would never
      # be committed, so the connection is closed.
      def heddle_left_open?
        gem = DatabaseGems.of(@raw_connection)
        return false if gem.idle?(@raw_connection)
        return false if @transaction_manager.instance_variable_get(:@stack).any?(&:materialized?)

        gem.close(@raw_connection)
        true
      end

      def heddle_verify_first
        @verified = false
        @last_activity = nil
      end
    end

    # Prepended to the adapters whose connections must be prepared.
    #
    # @api private
    module Preparation
      private

      # Called with each new connection.
      def configure_connection
        super
        DatabaseGems.of(@raw_connection).prepare(@raw_connection) { @config }
      end
    end

    # Prepended to the adapter for SQLite, which has rolled back a transaction in which a write was interrupted.
    #
    # @api private
    module RolledBack
      # A ROLLBACK would fail, and ActiveRecord would raise that in place of the interrupt.
      def exec_rollback_db_transaction(...)
        super unless $! && DatabaseGems.interrupted?($!) && DatabaseGems.of(@raw_connection).idle?(@raw_connection)
      end
    end

    # Prepended to ActiveRecord's ConnectionPool.
    #
    # @api private
    module Returns
      # An interrupt while the connection is settled must not cost the pool its place.
      def checkin(connection)
        connection.heddle_returned
      ensure
        super
      end
    end
    private_constant :Adapter, :Preparation, :RolledBack, :Returns
  end
end
