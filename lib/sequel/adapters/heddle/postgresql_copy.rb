# frozen_string_literal: true

module Sequel
  module HeddlePostgreSQL
    # COPY, as Sequel's adapter +postgres+ has it.
    module PostgreSQLCopy
      # Copies a table, or the rows of a dataset, to the program.
      #
      # @param table [Symbol, Dataset, String] a String is the whole statement
      # @option opts [:text, :csv, :binary] :format (:text)
      # @option opts [String] :options the statement's further options
      # @option opts [Symbol] :server the shard
      # @yieldparam row [String] the server's bytes of a row
      # @return [String, nil] without a block, all rows
      # @raise [Sequel::DatabaseError]; [Sequel::DatabaseDisconnectError] for a block that is left early, by an error
      #   (the error's cause), break or throw: the rest of the rows would be on its way, so the connection is closed
      def copy_table(table, opts = OPTS)
        whole = +"" unless defined?(yield)
        sql = copy_table_sql(table, opts)
        heddle_errors do
          synchronize(opts[:server]) do |conn|
            log_connection_yield(sql, conn) do
              heddle_copy_out(conn, sql) { |row| whole ? whole << row : yield(row) }
            end
          end
        end
        whole
      end

      # Copies rows from the program into a table. If the data raises an error, no row is kept.
      #
      # @param table [Symbol]
      # @option opts [Array<Symbol>] :columns those that the data has, in their order
      # @option opts [String, #each] :data pieces of the data, as PostgreSQL reads it
      # @option opts [:text, :csv, :binary] :format (:text)
      # @option opts [String] :options the statement's further options
      # @option opts [Symbol] :server the shard
      # @yieldreturn [String, nil] the next piece; nil at the end
      # @return [nil]
      # @raise [Sequel::DatabaseError]; [Sequel::Error] without data, or with :data and a block
      def copy_into(table, opts = OPTS, &block)
        data = opts[:data]
        raise Error, "copy_into takes either :data or a block, not both" if block && data
        raise Error, "copy_into needs :data or a block that returns the data" unless block || data

        data = [data] if data.is_a?(String)
        sql = copy_into_sql(table, opts)
        heddle_errors do
          synchronize(opts[:server]) do |conn|
            log_connection_yield(sql, conn) { heddle_copy_in(conn, sql, data, block) }
          end
        end
        nil
      end

      private

      def heddle_copy_out(conn, sql, &block)
        conn.copy_out(sql, raw: true, &block)
        done = true
      rescue ::Heddle::DB::Error, ::Timeout::Error
        done = true
        raise
      rescue => error
        done = true
        raise_error(error, disconnect: true)
      ensure
        raise DatabaseDisconnectError, "the block of copy_table was left early" unless done || $! || heddle_killed?
      end

      def heddle_killed? = Thread.current.status == "aborting"

      def heddle_copy_in(conn, sql, data, block)
        conn.copy_in(sql) do |copy|
          next data.each { |piece| copy.write(piece) } if data

          while (piece = heddle_callers(&block))
            copy.write(piece)
          end
        end
      end
    end
    private_constant :PostgreSQLCopy
  end
end
