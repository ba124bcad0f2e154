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
        # @param link [Link]
        # @param sql [SQL]
        def initialize(driver, server, link, sql)
          @driver = driver
          @link = link
          @sql = sql
          @changed = false
          read_settings if server.family == :postgresql
        end

        # Notes a statement before it is sent.
        def note(kind, sql)
          @changed ||= (kind == :plain) ? @sql.calls?(sql) : kind == :session || @sql.changes_session?(sql)
        end

        # Notes a kept statement with calls.
        def note_call
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

          @link.forget_prepared
          return false if @restoring && @driver.query(@restoring, @settings).is_a?(ServerError)

          settle
          true
        end

        private

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
