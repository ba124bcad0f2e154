# frozen_string_literal: true

module Heddle
  module DB
    # Sends queries without waiting for earlier answers; see {Connection#pipeline}.
    class Pipeline
      # The answer to a query, which may not have arrived yet.
      class Future
        # @api private
        def initialize(pipeline)
          @pipeline = pipeline
        end

        # @return [Result] waits for the answer if necessary
        # @raise [ServerError] when the server refused the query
        def value
          @pipeline.answer unless @result
          raise @result if @result.is_a?(Exception)

          @result || raise(ConnectionLost, "no answer to this query: its pipeline ended before one came")
        end

        # @api private
        def resolve(result)
          @result = result
        end
      end

      # The most bytes of SQL and Strings that are sent at once.
      BYTES = 256 << 10
      private_constant :BYTES

      # @api private
      # @yield [requests] runs them, and yields what their futures resolve to
      def initialize(limit, resolve, &run)
        unless limit.is_a?(Integer) && limit.between?(1, 100)
          raise ArgumentError, "limit: must be a number of queries from 1 to 100, not #{limit.inspect}"
        end

        @limit = limit
        @resolve = resolve
        @run = run
        @requests = []
        @futures = []
        @bytes = 0
      end

      # @param sql [String, VirtualStatement, BoundStatement] see {Connection#query}
      # @return [Future]
      def query(sql, *arguments)
        sql, arguments = @resolve.call(sql, arguments) unless String === sql && !(Hash === arguments.last)
        raise TypeError, "SQL must be a String, not #{sql.inspect}" unless sql.is_a?(String)

        future = Future.new(self)
        sql = Snapshot.of(sql)
        arguments = Snapshot.all(arguments)
        @requests << [sql, arguments]
        @futures << future
        @bytes += sql.bytesize + arguments.sum { |argument| argument.is_a?(String) ? argument.bytesize : 8 }
        finish if full?
        future
      end
      ruby2_keywords :query

      # @api private for a future
      def answer = finish

      # Waits for all answers.
      #
      # @return [self]
      def finish
        requests, futures = @requests, @futures
        @requests, @futures, @bytes = [], [], 0
        return self if requests.empty?

        @run.call(requests) { |results| results.each_with_index { |result, index| futures[index].resolve(result) } }
        self
      end

      private

      def full? = @requests.size >= @limit || @bytes >= BYTES
    end
  end
end
