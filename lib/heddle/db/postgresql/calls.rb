# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # The functions that the statements of a connection called and that may have changed its session. The server is
      # asked, once for each name, behind the statements: when the connection goes back to its pool.
      #
      # @api private
      class Calls
        # Names that are known.
        MOST = 1000
        # Functions of the server's own that are volatile, and leave nothing behind their transaction.
        HARMLESS = %w[random random_normal clock_timestamp timeofday nextval setval currval lastval gen_random_uuid
          uuidv4 uuidv7 pg_sleep pg_sleep_for pg_sleep_until pg_notify pg_cancel_backend pg_terminate_backend
          pg_blocking_pids pg_safe_snapshot_blocking_pids pg_isolation_test_session_is_blocked pg_lock_status
          pg_relation_size pg_total_relation_size pg_table_size pg_indexes_size pg_database_size pg_tablespace_size
          pg_current_wal_lsn pg_current_wal_insert_lsn pg_current_wal_flush_lsn pg_last_wal_receive_lsn
          pg_last_wal_replay_lsn pg_is_in_recovery pg_export_snapshot pg_stat_clear_snapshot txid_current_if_assigned
          pg_advisory_xact_lock pg_advisory_xact_lock_shared pg_try_advisory_xact_lock
          pg_try_advisory_xact_lock_shared lo_create lo_creat lo_from_bytea lo_put lo_unlink lo_import lo_export
          lo_open lo_close loread lowrite lo_lseek lo_lseek64 lo_tell lo_tell64 lo_truncate lo_truncate64].freeze
        # A function that is not volatile changes nothing; what a name stands for depends on the search path.
        ASKED = <<~SQL
          select distinct proname::pg_catalog.text from pg_catalog.pg_proc
          where proname = any(?::pg_catalog.name[]) and provolatile = 'v'
            and not (pronamespace = 'pg_catalog'::pg_catalog.regnamespace and proname = any(?::pg_catalog.name[]))
        SQL
        private_constant :MOST, :HARMLESS, :ASKED

        # @return [Hash{String, nil => true}] names that the statements called since the last look
        attr_reader :unknown

        def initialize
          @unknown = {}
          @known = {} # names; true for those that may change a session
        end

        # @param names [Array<String, nil>] nil for one that the text does not tell
        def record(names)
          names.each { |name| @unknown[name] = true unless @known[name] == false }
        end

        # @return [Boolean] whether one of them may have changed the session
        def change_session?(protocol)
          return true if @unknown.key?(nil) || @unknown.size > MOST

          look_up(protocol, @unknown.keys.reject { |name| @known.key?(name) })
          @unknown.keys.any? { |name| @known[name] }
        end

        def clear = @known.clear

        private

        def look_up(protocol, names)
          return if names.empty?

          result = protocol.run_own(ASKED, [names, HARMLESS])
          changing = result.is_a?(ServerError) ? names : result.rows.flatten
          @known.clear if @known.size + names.size > MOST
          names.each { |name| @known[name] = changing.include?(name) }
        end
      end
      private_constant :Calls
    end
  end
end
