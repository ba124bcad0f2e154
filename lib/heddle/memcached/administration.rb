# frozen_string_literal: true

module Heddle
  class Memcached
    # Requests to servers, not to keys. Each request goes to all servers, even when one fails; its error is raised at
    # the end.
    module Administration
      # @return [Hash{String => String}] by the servers' names
      def version
        ask_all("version\r\n").transform_values(&:first)
      end

      # @param type [String, Symbol, nil] :items, :slabs, :settings, …
      # @return [Hash{String => Hash{String => String}}]
      def stats(type = nil)
        ask_all("stats#{word(type)}\r\n").transform_values { |lines| lines.to_h { |line| line.split(" ", 2) } }
      end

      # Sets the counters of #stats back to 0.
      #
      # @return [nil]
      def reset_stats
        ask_all("stats reset\r\n")
        nil
      end

      # Deletes all items on all servers.
      #
      # @param delay [Integer] seconds from now
      # @return [nil]
      def flush_all(delay = 0)
        ask_all(flush_request(delay))
        nil
      end

      # Sets how much the servers write to their logs.
      #
      # @param level [Integer]
      # @return [nil]
      def verbosity(level)
        ask_all("verbosity #{Numbers.unsigned(:level, level)}\r\n")
        nil
      end

      private

      # @return [Hash{String => Array<String>}] by the servers' names
      def ask_all(request)
        answers, failures = ask_each(request)
        raise failures.first if failures.any?

        answers
      end

      # @return [Array(Hash{String => Array<String>, nil}, Array<Exception>)] nil for a server that failed
      def ask_each(request)
        failures = []
        answers = @servers.to_h do |server|
          [server.name, server.ask(request, @timeout)]
        rescue Failure, Heddle::Error => error
          failures << error
          [server.name, nil]
        end
        [answers, failures]
      end

      def word(type)
        return if type.nil?
        unless type.to_s.match?(/\A[a-z_]+\z/)
          raise ArgumentError, "the type of statistics must be a word: got #{type.inspect}"
        end

        " #{type}"
      end

      def flush_request(delay)
        Numbers.unsigned(:delay, delay).zero? ? "flush_all\r\n" : "flush_all #{delay}\r\n"
      end
    end
    private_constant :Administration
  end
end
