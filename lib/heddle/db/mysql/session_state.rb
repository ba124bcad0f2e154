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
        # Words of changes that the server does not report. If they match elsewhere in a statement, that costs a
        # needless reset.
        UNSEEN = /\b(?:lock|flush|handler|call|execute|backup|xa|temporary|set\s+transaction)\b/i
        INIT_DB = 0x02
        RESET = 0x1f
        private_constant :TRACKING, :COLLATIONS, :UNSEEN, :INIT_DB, :RESET

        # @param link [Link]
        # @param login [Login] the completed log-in
        # @param zone [String, nil] the time zone; nil for the server's own
        def initialize(link, login, charset, zone)
          @link = link
          @database = login.database
          @settings = []
          @settings << "time_zone = '#{zone}'" if zone
          @settings << TRACKING if (@tracked = login.tracks_session?)
          # A reset makes MySQL forget the settings of the log-in, but not MariaDB.
          @names = "NAMES #{charset} COLLATE #{COLLATIONS[charset]}" unless login.mariadb? || !COLLATIONS.key?(charset)
        end

        # @return [Result, ServerError, nil]
        def set_up
          result = @link.run_text("SET #{@settings.join(", ")}") unless @settings.empty?
          if result.is_a?(ServerError) && @tracked # somebody between us and the server promised it
            @tracked = false
            @settings.delete(TRACKING)
            return set_up
          end
          @link.settle
          result
        end

        # Notes a statement before it is sent, unless it is :plain.
        #
        # @param kind [Symbol] see {Link.kind_of}
        def note(kind, sql)
          @touched ||= kind == :session || !@tracked || UNSEEN.match?(sql)
        end

        # @return [Boolean] whether the next user would see changes of an earlier user
        def changed? = @touched || @link.changed?

        # Takes the session as it is for what every user expects.
        def settle
          @touched = false
          @link.settle
        end

        # Restores the whole session in one round trip. The server closes all prepared statements.
        #
        # @return [Boolean] whether that worked
        def reset
          @link.forget_statements
          @link.send_command(RESET, "")
          @link.send_command(INIT_DB, @database.b) if @database
          settings = [*@names, *@settings]
          @link.send_query("SET #{settings.join(", ")}") unless settings.empty?
          @link.send_query("SELECT DATABASE()") unless @database # which cannot be taken back to none
          results = Array.new(@link.owed) { @link.receive_text }
          settle
          results.none?(ServerError) && (@database || results.last.rows == [[nil]])
        end
      end
    end
  end
end
