# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # The state that the server keeps for a connection besides its statements: settings, locks, temporary tables, a
      # transaction that a text began. ODBC does not tell of its changes, so each statement that may change something
      # counts as a change. PostgreSQL has a statement that resets the session; for other databases a pool opens another
      # connection.
      #
      # @api private
      class Session
        RESET = "discard all"
        # What the driver's connect and the source have set, which the reset would take for the borrower's.
        SETTINGS = "select name::varchar, setting::varchar from pg_catalog.pg_settings where source = 'session'"
        private_constant :RESET, :SETTINGS

        # @param driver [Driver] that has just connected
        # @param server [Server]
        # @param client [Client]
        # @param sql [SQL]
        # @param time_zone [:utc, :local] of the times that are sent and read
        # @raise [LoginFailed, ConnectionLost]
        def initialize(driver, server, client, sql, time_zone)
          @driver = driver
          @client = client
          @sql = sql
          @changed = false
          set_zone(server, time_zone)
          read_settings if server.family == :postgresql
          client.read_utf8 if sends_utf8?(server)
        end

        # Notes a statement before it is sent.
        def record(kind, sql)
          @changed ||= (kind == :plain) ? @sql.calls?(sql) : kind == :session || @sql.changes_session?(sql)
        end

        # Notes a kept statement with calls.
        def record_call
          @changed = true
        end

        # @return [Boolean]
        def changed? = @changed

        # Takes the session as it is for what every user expects.
        def settle
          @changed = false
        end

        # @return [Boolean] whether the session is as it was after the connect. In a transaction that a text began it is
        #   not: the server refuses the reset there
        def reset
          return false unless @settings
          return false if @driver.command(RESET).is_a?(ServerError)

          @client.forget_prepared
          return false if @restoring && @driver.query(@restoring, @settings).is_a?(ServerError)

          settle
          true
        end

        private

        # now() and the columns of times with a zone are of the session's zone, and a driver gives their digits.
        def set_zone(server, time_zone)
          statement = case server.family
          when :mysql
            MySQL.const_get(:SessionZone).zone(@driver, time_zone)&.then { |zone| "set time_zone = '#{zone}'" }
          when :postgresql then "set timezone to '#{PostgreSQL.const_get(:SessionZone).name(time_zone)}'"
          end
          result = @driver.command(statement) if statement
          return unless result.is_a?(ServerError)
          if @driver.final?(result)
            raise ConnectionLost, "the connection to #{@driver.description} was lost during the log-in " \
              "(#{result.message})"
          end

          raise LoginFailed, "#{@driver.description} refuses to set the session's time zone: #{result.message}"
        end

        # MariaDB's driver ends a text at its first NUL, but not one that is read as bytes. These are in the encoding
        # that the server was told to send.
        def sends_utf8?(server)
          return false unless server.family == :mysql && server.splits_routines?

          result = @driver.command("select cast(@@character_set_results as char(20))")
          result.is_a?(Result) && result.rows[0][0].to_s.start_with?("utf8")
        end

        # A server that only resembles PostgreSQL may refuse this.
        def read_settings
          result = @driver.command(SETTINGS)
          return if result.is_a?(ServerError)

          @settings = result.rows.flatten.freeze
          calls = result.rows.map { "pg_catalog.set_config(?, ?, false)" }
          @restoring = "select #{calls.join(", ")}" if calls.any?
        end
      end
    end
  end
end
