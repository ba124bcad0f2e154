# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # The state that the server keeps for a connection besides its statements: variables, the default database, locks,
      # temporary tables. It is set once, watched (with session_track_state_change the server reports changes in each
      # answer), and restored before the next user gets the connection.
      class SessionState
        TRACKING = "session_track_state_change = 1"
        COLLATIONS = {"utf8mb4" => "utf8mb4_general_ci", "utf8" => "utf8_general_ci", "latin1" => "latin1_swedish_ci",
                      "ascii" => "ascii_general_ci", "binary" => "binary"}.freeze
        INIT_DB = 0x02
        RESET = 0x1f
        # A reset leaves the role. In MySQL it can be set to what the log-in chose, in MariaDB it can only be compared.
        ALL_ROLES = "@@activate_all_roles_on_login"
        DEFAULT_ROLE = "CURRENT_ROLE() <=> " \
          "(SELECT MAX(role_name) FROM information_schema.applicable_roles WHERE is_default = 'YES')"
        private_constant :TRACKING, :COLLATIONS, :INIT_DB, :RESET, :ALL_ROLES, :DEFAULT_ROLE

        # @param protocol [Protocol]
        # @param login [Login] the completed log-in
        # @param zone [String, nil] the time zone; nil for the server's own
        def initialize(protocol, login, charset, zone)
          @protocol = protocol
          @database = login.database
          @settings = []
          @settings << "time_zone = '#{zone}'" if zone
          @settings << TRACKING if (@tracked = login.tracks_session?)
          # A reset makes MySQL forget the settings of the log-in, but not MariaDB.
          @mariadb = login.mariadb?
          @roles = "DEFAULT" if !@mariadb && login.version.to_i >= 8
          @names = "NAMES #{charset} COLLATE #{COLLATIONS[charset]}" unless login.mariadb? || !COLLATIONS.key?(charset)
        end

        # @return [Result, ServerError, nil]
        def set_up
          result = @protocol.run_text("SET #{@settings.join(", ")}") unless @settings.empty?
          if result.is_a?(ServerError) && @tracked # somebody between us and the server promised it
            @tracked = false
            @settings.delete(TRACKING)
            return set_up
          end
          @protocol.settle
          result
        end

        # Notes a statement before it is sent, unless it is :plain. The server does not report all changes, so any
        # statement counts that is not known to make none.
        #
        # @param kind [Symbol] see {Protocol.kind_of}
        def record(kind, sql)
          @touched ||= kind == :session || !@tracked || Protocol.leaves_traces?(sql)
        end

        # @return [Boolean] whether the next user would see changes of an earlier user
        def changed? = @touched || @protocol.changed?

        # Takes the session as it is for what every user expects.
        def settle
          @touched = false
          @protocol.settle
        end

        # Restores the whole session in one round trip. The server closes all prepared statements.
        #
        # @return [Boolean] whether that worked
        def reset
          @protocol.forget_statements
          @protocol.send_command(RESET, "")
          @protocol.send_command(INIT_DB, @database.b) if @database
          settings = [*@names, *@settings]
          @protocol.send_query("SET #{settings.join(", ")}") unless settings.empty?
          @protocol.send_query("SET ROLE #{@roles}") if @roles
          checks = what_is_left
          @protocol.send_query("SELECT #{checks.join(", ")}") unless checks.empty?
          results = Array.new(@protocol.owed) { @protocol.receive_text }
          settle
          results.none?(ServerError) && (checks.empty? || as_before?(checks.zip(results.last.rows.first || []).to_h))
        end

        private

        # What has to be asked about a session behind its reset: SQL whose value is to be 1. The default database cannot
        # be taken back to none.
        def what_is_left
          [("DATABASE() IS NULL" unless @database), (DEFAULT_ROLE if @mariadb),
            (ALL_ROLES if @roles == "DEFAULT")].compact
        end

        def as_before?(answers)
          all_roles = answers.delete(ALL_ROLES)
          return false unless answers.values.all?(1)
          return true unless all_roles == 1

          @roles = "ALL"
          !@protocol.run_text("SET ROLE ALL").is_a?(ServerError)
        end
      end
    end
  end
end
