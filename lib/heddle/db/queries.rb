# frozen_string_literal: true

module Heddle
  module DB
    # What {Connection}, {Pool} and {SQLite::Pool} return of a query but its whole {Result}. A pool runs each on one of
    # its connections.
    #
    # The parameters are those of {Connection#query}, and so are the errors; a pool also raises what its +with+ does.
    module Queries
      # Runs a statement for its effect.
      #
      # @return [Integer] how many rows the statement changed
      def exec(sql, *arguments) = query(sql, *arguments).affected_rows

      # @return the one value of the one row
      # @raise [UnexpectedRows] when there are more, or none
      def query_value(sql, *arguments) = only_value(query_row(sql, *arguments), sql)

      # @return the one value of the row; nil for no rows
      # @raise [UnexpectedRows] when there are more rows or columns
      def query_value_or_nil(sql, *arguments)
        row = query_row_or_nil(sql, *arguments)
        row && only_value(row, sql)
      end

      # @return [Array] the one row
      # @raise [UnexpectedRows] when there are more, or none
      def query_row(sql, *arguments) = only_row(query(sql, *arguments), sql)

      # @return [Array, nil] the row; nil for no rows
      # @raise [UnexpectedRows] when there are more
      def query_row_or_nil(sql, *arguments)
        result = query(sql, *arguments)
        result.empty? ? nil : only_row(result, sql)
      end

      # @return [Array] the one column's values
      # @raise [UnexpectedRows] when there are more columns
      def query_column(sql, *arguments)
        result = query(sql, *arguments)
        raise UnexpectedRows, "#{result.fields.size} columns instead of one: #{sql}" unless result.fields.size == 1

        result.rows.map(&:first)
      end

      # Calls without keywords need no Hash.
      ruby2_keywords :exec, :query_value, :query_value_or_nil, :query_row, :query_row_or_nil, :query_column

      # Racket's name for {#query_value_or_nil}.
      alias_method :query_maybe_value, :query_value_or_nil
      # Racket's name for {#query_row_or_nil}.
      alias_method :query_maybe_row, :query_row_or_nil
      # Racket's name for {#query_column}.
      alias_method :query_list, :query_column

      private

      def only_value(row, sql)
        raise UnexpectedRows, "#{row.size} columns instead of one: #{sql}" unless row.size == 1

        row.first
      end

      def only_row(result, sql)
        raise UnexpectedRows, "#{result.size} rows instead of one: #{sql}" unless result.size == 1

        result[0]
      end
    end
  end
end
