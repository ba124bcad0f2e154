# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # What the server keeps for a connection besides its statements: variables, the default database, locks, temporary
      # tables. It is set once, watched (the server says with each answer whether it has changed:
      # session_track_state_change), and put back before somebody else has the connection.
      class SessionState
        TRACKING = "session_track_state_change = 1"
        COLLATIONS = {"utf8mb4" => "utf8mb4_general_ci", "utf8" => "utf8_general_ci", "latin1" => "latin1_swedish_ci",
                      "ascii" => "ascii_general_ci", "binary" => "binary"}.freeze
        # What the server does not report. Elsewhere in a statement it costs a reset in vain.
        UNSEEN = /\b(?:lock|flush|handler|call|execute|backup|xa|temporary|set\s+transaction)\b/i
        INIT_DB = 0x02
        RESET = 0x1f
        private_constant :TRACKING, :COLLATIONS, :UNSEEN, :INIT_DB, :RESET

        # @param link [Link]
        # @param login [Login] that has been performed
        # @param zone [String, nil] the time zone, unless it is the server's own
        def initialize(link, login, charset, zone)
          @link = link
          @database = login.database
          @settings = []
          @settings << "time_zone = '#{zone}'" if zone
          @settings << TRACKING if (@tracked = login.tracks_session?)
          # MySQL forgets what the login has said; MariaDB does not.
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

        # Notes a statement that is about to be sent, and is not :plain.
        #
        # @param kind [Symbol] as {Link.kind_of} has it
        def note(kind, sql)
          @touched ||= kind == :session || !@tracked || UNSEEN.match?(sql)
        end

        # @return [Boolean] whether the next user would find something of the one before
        def changed? = @touched || @link.changed?

        # Puts everything back, in one flight. The server closes all prepared statements.
        #
        # @return [Boolean] whether it worked
        def reset
          @link.forget_statements
          @link.send_command(RESET, "")
          @link.send_command(INIT_DB, @database.b) if @database
          settings = [*@names, *@settings]
          @link.send_query("SET #{settings.join(", ")}") unless settings.empty?
          @link.send_query("SELECT DATABASE()") unless @database # which cannot be taken back to none
          results = Array.new(@link.owed) { @link.receive_text }
          @touched = false
          @link.settle
          results.none?(ServerError) && (@database || results.last.rows == [[nil]])
        end
      end
    end
  end
end
