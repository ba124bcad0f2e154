# frozen_string_literal: true

module Heddle
  module DB
    # Turns named parameters and lists into what the server takes: ? or $1. Where names, values and the statement do not
    # fit, says what is wrong.
    #
    # @api private
    class Placeholders
      # Drivers count the values, and know nothing of names.
      COUNT = /\Awrong number of values for the statement \(given (\d+), expected \d+\)/
      # SQLSTATEs of servers that refuse a text with a :name.
      REFUSALS = %w[42000 42601 07001 07002 HY000].freeze
      ONE_KIND = "give all parameters of a statement as ?, or all as :name"
      UTF8 = ->(text) { [Encoding::UTF_8, Encoding::US_ASCII].include?(text.encoding) }
      private_constant :COUNT, :REFUSALS, :ONE_KIND, :UTF8

      class << self
        # @param arguments [Array] values, or one Hash of keywords
        # @return [Array(String, Array)] the text for the server and the values of its parameters
        # @raise [ArgumentError] when names and values do not fit, or nothing can tell where the parameters are
        def resolve(driver, sql, arguments)
          last = arguments.last
          if last.is_a?(Hash) && Hash.ruby2_keywords_hash?(last)
            new(driver, sql).named(last, arguments.size - 1)
          elsif arguments.any?(List)
            new(driver, sql).positional(arguments)
          else
            known(driver, sql)&.want_keywords(arguments.size) if last.is_a?(Hash)
            [sql, arguments]
          end
        end

        # Makes an error clearer that came because the values do not fit the statement.
        #
        # @param error [Exception, nil] the driver's or the server's
        # @param sql [String, nil] what was run, with its names if nobody has resolved them
        # @return [Exception, nil]
        def explained(driver, error, sql)
          return error unless sql.is_a?(String)

          if error.instance_of?(ArgumentError) && (count = error.message[COUNT, 1])
            known(driver, sql)&.want_keywords(Integer(count))
            error.exception("#{error.message}: #{sql}")
          elsif error.instance_of?(ServerError) && REFUSALS.include?(error.sql_state)
            advice = known(driver, sql)&.advice
            advice ? error.exception("#{error.message}; #{advice}") : error
          else
            error
          end
        rescue ArgumentError => clearer
          clearer
        end

        # @return [Array<Symbol>] the names of the statement's parameters
        def names(driver, sql) = new(driver, sql).names

        private

        # @return [Placeholders, nil] nil where it depends on the server where the parameters are
        def known(driver, sql)
          new(driver, sql)
        rescue ArgumentError, EncodingError
          nil
        end
      end

      def initialize(driver, sql)
        @numbered = driver.numbered_placeholders?
        @sql = in_utf8(sql) # the driver counts the bytes of such a text
        @found = driver.placeholders(@sql)
        @names = @found.filter_map(&:first).uniq.map(&:to_sym)
        @arguments = []
      end

      # @return [Array<Symbol>] of the statement's parameters
      attr_reader :names

      # @param others [Integer] how many values without a name there are
      def named(values, others)
        refuse("give values for ? or keywords for :name, not both") if others > 0
        values = values.transform_keys { |name| in_utf8(name.name).to_sym } unless values.keys.all?(&UTF8)
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
        want_keywords(values.size)
        count = 0
        text = replaced do |name, length|
          next "?" if length == 2 # ??: how an operator with a question mark is written beside placeholders

          count += 1
          mark(values[count - 1]) if count <= values.size
        end
        return [text, @arguments] if count == values.size

        refuse("wrong number of values for the statement (given #{values.size}, expected #{count})")
      end

      # @param count [Integer] of the values, none of which has a name
      # @raise [ArgumentError] if the statement has names
      def want_keywords(count)
        refuse("#{count} #{(count == 1) ? "value" : "values"} without a name; #{advice}") if advice
      end

      # @return [String, nil] how to give the values of a statement with names
      def advice
        return if @names.empty?

        return ONE_KIND if mixed?

        "this statement takes keywords: query(sql, #{@names.map { |name| "#{name}: …" }.join(", ")})"
      end

      private

      def in_utf8(text)
        return text unless String === text && text.encoding != Encoding::BINARY && !UTF8.call(text)

        text.encode(Encoding::UTF_8)
      end

      def check_names(values)
        if @names.empty?
          refuse("the statement has no parameters such as :name, but values for #{shown(values.keys)}; write these " \
            "names in it, or give the values without names")
        end
        refuse(ONE_KIND) if mixed?

        missing = @names - values.keys
        refuse("no value for #{shown(missing)}; #{advice}") unless missing.empty?

        unknown = values.keys - @names
        refuse("the statement has no parameter #{shown(unknown)}: it has #{shown(@names)}") unless unknown.empty?
      end

      def refuse(reason)
        raise ArgumentError, "#{reason}: #{@sql}"
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
