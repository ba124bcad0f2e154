# frozen_string_literal: true

module Heddle
  module DB
    # Turns named parameters and lists into what the server takes: ? or $1.
    #
    # @api private
    class Placeholders
      # @param arguments [Array] values, or one Hash of keywords
      # @return [Array(String, Array)] the text for the server and the values of its parameters
      # @raise [ArgumentError] when names and values do not fit, or nothing can tell where the parameters are
      def self.resolve(driver, sql, arguments)
        named = arguments.last
        if named.is_a?(Hash) && Hash.ruby2_keywords_hash?(named)
          raise ArgumentError, "give values for ? or keywords for :name, not both" if arguments.size > 1

          new(driver, sql).named(named)
        elsif arguments.any?(List)
          new(driver, sql).positional(arguments)
        else
          [sql, arguments]
        end
      end

      def initialize(driver, sql)
        @numbered = driver.numbered_placeholders?
        @sql = sql
        @found = driver.placeholders(sql)
        @arguments = []
      end

      def named(values)
        check_names(values)
        marks = {}
        text = replaced do |name, _|
          next unless name

          # A number may stand several times.
          @numbered ? (marks[name] ||= mark(values.fetch(name.to_sym))) : mark(values.fetch(name.to_sym))
        end
        [text, @arguments]
      end

      def positional(values)
        count = 0
        text = replaced do |name, length|
          next if name
          next "?" if length == 2 # ??: how an operator with a question mark is written beside placeholders

          count += 1
          mark(values[count - 1]) if count <= values.size
        end
        return [text, @arguments] if count == values.size

        raise ArgumentError, "wrong number of values for the statement (given #{values.size}, expected #{count})"
      end

      private

      def check_names(values)
        names = @found.filter_map(&:first).uniq.map(&:to_sym)
        if names.empty?
          raise ArgumentError, "the statement has no parameters such as :name, but values for #{shown(values.keys)}"
        end
        raise ArgumentError, "give all parameters of a statement as ?, or all as :name" if mixed?

        missing = names - values.keys
        raise ArgumentError, "no value for #{shown(missing)}" unless missing.empty?

        unknown = values.keys - names
        return if unknown.empty?

        raise ArgumentError, "the statement has no parameter #{shown(unknown)}: it has #{shown(names)}"
      end

      # Where placeholders are numbers, a question mark beside names is an operator.
      def mixed? = !@numbered && @found.any? { |name, _| name.nil? }

      def shown(names) = names.map { |name| ":#{name}" }.join(", ")

      def mark(value)
        values = value.is_a?(List) ? value.values : [value]
        values.map { |one| @numbered ? "$#{@arguments.push(one).size}" : @arguments.push(one) && "?" }.join(", ")
      end

      # The text with other placeholders, where the block has one.
      def replaced
        position = 0
        parts = @found.flat_map do |name, offset, length|
          next [] unless (mark = yield(name, length))

          before = @sql.byteslice(position, offset - position)
          position = offset + length
          [before, mark]
        end
        parts << @sql.byteslice(position..)
        parts.join
      end
    end
    private_constant :Placeholders
  end
end
