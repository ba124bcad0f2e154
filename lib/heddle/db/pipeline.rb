# frozen_string_literal: true

module Heddle
  module DB
    # Queries that are sent before the answers to those before them have come; see {Connection#pipeline}.
    class Pipeline
      # An answer to come.
      class Future
        # @api private
        def initialize(pipeline)
          @pipeline = pipeline
        end

        # @return [Result] waits for it when it has not come yet
        # @raise [ServerError] what the server refused
        def value
          @pipeline.finish unless @result
          raise @result if @result.is_a?(Exception)

          @result || raise(ConnectionLost, "the answer to this query never came: the connection was closed meanwhile")
        end

        # @api private
        def resolve(result)
          @result = result
        end
      end

      # Bytes of SQL and Strings that are sent at once.
      BYTES = 256 << 10
      private_constant :BYTES

      # @api private
      def initialize(limit, &run)
        raise ArgumentError, "limit: is a number of queries from 1 to 100, not #{limit.inspect}" unless limit.is_a?(Integer) && limit.between?(1, 100)

        @limit = limit
        @run = run
        @requests = []
        @futures = []
        @bytes = 0
      end

      # @param sql [String]
      # @return [Future]
      def query(sql, *arguments)
        raise TypeError, "SQL is a String, not #{sql.inspect}" unless sql.is_a?(String)

        future = Future.new(self)
        @requests << [sql, arguments]
        @futures << future
        @bytes += sql.bytesize + arguments.sum { |argument| argument.is_a?(String) ? argument.bytesize : 8 }
        finish if @requests.size >= @limit || @bytes >= BYTES
        future
      end

      # Waits for all answers.
      #
      # @return [self]
      def finish
        requests, futures = @requests, @futures
        @requests, @futures, @bytes = [], [], 0
        return self if requests.empty?

        @run.call(requests).each_with_index { |result, index| futures[index].resolve(result) }
        self
      end
    end
  end
end
