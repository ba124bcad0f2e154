# frozen_string_literal: true

module Heddle
  module DB
    # For libraries that write complete statements and make rows of their own kind, such as Sequel.
    #
    # @api private
    module ForeignRows
      # Runs a statement without parameters in the server's own text protocol: it need not be preparable.
      #
      # @param sql [String]
      # @return [Result]
      # @raise [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      # @api private
      def query_text(sql)
        return exchange(sql) { run_text(sql) } unless QueryListeners.anyone

        watched(sql) { exchange(sql) { run_text(sql) } }
      end

      # Like {Connection#each_row}, with all rows of a fetch at once, and with their columns.
      #
      # @yieldparam rows [Array<Array>] empty, once, for a statement without rows
      # @yieldparam columns [#names, #descriptions] those of the database
      # @return [self]
      # @api private
      def each_batch(sql, arguments, fetch:)
        watch = watch_for(sql)
        cursor = measured(watch) { exchange(sql) { checked(open_cursor(sql, arguments), sql) } }
        watch&.rows = 0
        first = true
        until (rows = measured(watch) { exchange(sql) { checked(cursor.fetch(fetch), sql) } }).empty? && !first
          first = false
          watch.rows += rows.size if watch
          yield rows, cursor.columns
          break if rows.empty?
        end
        self
      ensure
        if cursor
          cursor.close
          watch&.done(nil)
        end
      end

      private

      def run_text(sql)
        kind = @driver.kind(sql)
        check_transaction(kind, sql)
        @cache.clear if kind != :plain && @driver.invalidates?(kind)
        checked(@driver.command(sql), sql)
      end

      def open_cursor(sql, arguments)
        check_transaction(@driver.kind(sql), sql)
        @driver.open_cursor(sql, arguments)
      end
    end
    private_constant :ForeignRows
  end
end
