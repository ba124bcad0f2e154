# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # The text of those arguments that C does not write itself.
      #
      # @api private
      module Parameters
        # A value that is sent in the binary form of its type.
        Binary = Struct.new(:type, :bytes)

        ANY = 0
        BOOL = 16
        BYTES = 17
        INT8 = 20
        INT4 = 23
        FLOAT8 = 701
        DATE = 1082
        TIME = 1083
        INTERVAL = 1186
        NUMERIC = 1700
        TIMESTAMPTZ = 1184
        INT4_VALUES = (-2**31..2**31 - 1)
        INT8_VALUES = (-2**63..2**63 - 1)
        # The type of an Array is that of its elements; strings have none, like a single one.
        ARRAYS = {BOOL => 1000, BYTES => 1001, INT8 => 1016, INT4 => 1007, FLOAT8 => 1022, DATE => 1182, TIME => 1183,
                  TIMESTAMPTZ => 1185, NUMERIC => 1231, INTERVAL => 1187}.freeze
        # Numbers of several types make an Array of the last of them.
        NUMBERS = [INT4, INT8, NUMERIC, FLOAT8].freeze
        # Durations of several types make an Array of times if all are times of a day, else one of intervals.
        SPANS = [TIME, INTERVAL].freeze
        END_OF_DAY = Duration.parse("24:00:00")
        TIMES_OF_DAY = (Duration.new(0)..END_OF_DAY)
        # Beyond these a numeric's digits before the point would be a text of any length, which the server refuses.
        EXPONENTS = (-20_000..140_000)
        # An empty array. JSON allows no such space in front, and so does not get an empty object in its place.
        EMPTY = "\v{}"
        # Microseconds from which on the hours have more than 31 bits: old servers refuse such an hour.
        LONG = (1 << 31) * 3_600_000_000
        private_constant :ANY, :BOOL, :BYTES, :INT8, :INT4, :FLOAT8, :DATE, :TIME, :INTERVAL, :NUMERIC, :TIMESTAMPTZ,
          :INT4_VALUES, :INT8_VALUES, :ARRAYS, :NUMBERS, :SPANS, :END_OF_DAY, :TIMES_OF_DAY, :EXPONENTS, :EMPTY, :LONG

        class << self
          # @param value any other than nil, Integer, Float, true, false, String and Symbol
          # @param number [Integer] of the argument, from 1
          # @return [(Integer, String)] the OID of its type, 0 for one that the server finds out, and its text; with a
          #   third element for bytes in the type's binary form; or [value] for another value to bind instead
          # @raise [TypeError]
          def convert(value, local, number)
            case value
            when BigDecimal then [NUMERIC, numeric(value)]
            when Time then [TIMESTAMPTZ, time(value, local)]
            when DateTime then [TIMESTAMPTZ, time(Calendar.time(value), local)]
            when Date then [DATE, date(value)]
            when Duration then duration(value)
            when Interval then [INTERVAL, value.to_s]
            when Array then array(value, local, number)
            when Hash then [ANY, json(value, number)]
            when Range then [ANY, range(value, local, number)]
            when PGRange then [ANY, bounds(value, local, number)]
            when IPAddr then [ANY, "#{value}/#{value.prefix}"]
            when *GEOMETRY then [ANY, value.to_s]
            when Binary then [value.type, value.bytes, true]
            when SimpleResults::Text then [value.type, value.text]
            else other(value, local, number)
            end
          end

          # Replaces the values of which only the server can say what they are: an empty Array is an array or JSON, an
          # Array of Ranges is an array or a multirange, a Hash is JSON or an hstore, and a range of Integers has an
          # infinite end only if its type has infinite numbers. A statement with such a value takes one more round trip,
          # unless it is prepared.
          #
          # @param prepared [Prepared, nil] the statement, if it is prepared
          # @return [Array, ServerError] the arguments; the server's refusal of the statement
          def settled(protocol, sql, arguments, prepared)
            hashes = arguments.any?(Hash) && Types.hstore?(protocol)
            places = arguments.each_index.select { |index| undecided?(arguments[index], hashes) }
            return arguments if places.empty?

            types = prepared ? prepared.types : protocol.parameter_types(sql, arguments)
            return types if types.is_a?(ServerError)

            wanted = types.values_at(*places)
            Types.know(protocol, wanted.uniq - [0, nil])
            form = BinaryForm.new(protocol)
            arguments = arguments.dup
            places.zip(wanted) { |index, oid| arguments[index] = form.parameter(arguments[index], oid) if oid }
            arguments
          end

          # @return [Boolean] whether {.settled} may have to ask the server
          def doubtful?(protocol, arguments)
            hashes = protocol.instance_variable_get(:@hstore) != false
            arguments.any? { |value| undecided?(value, hashes) }
          end

          # A value for the text form of a COPY, which tells no types.
          def convert_untyped(value, local, number)
            return [ANY, EMPTY] if (Array === value || a_set?(value)) && value.empty?

            convert(value, local, number)
          end

          # Arguments for types that are not known.
          def untyped(arguments)
            arguments.map { |value| (value == []) ? SimpleResults::Text.new(ANY, EMPTY) : value }
          end

          private

          def undecided?(value, hashes)
            case value
            when nil, true, false, Integer, Float, String, Symbol, Time then false
            when Array then undecided_elements?(value)
            when Range then whole_to_infinity?(value)
            when Hash then hashes
            when Date, BigDecimal, Duration, Struct then false
            else
              return undecided_elements?(value.to_a) if a_set?(value)

              _, encode = Types.encoders.find { |klass, _| klass === value }
              encode ? undecided?(encode.call(value), hashes) : false
            end
          end

          # The elements of an array are alike.
          def undecided_elements?(values)
            first = values.first
            first = values.flatten.find { |value| !value.nil? } if first.nil? || Array === first
            case first
            when nil, Range, PGRange, Hash then true
            else false
            end
          end

          def whole_to_infinity?(range)
            ends = [range.begin, range.end]
            ends.any? { |bound| infinite?(bound) } && ends.all? { |bound| Integer === bound || infinite?(bound) }
          end

          def infinite?(bound) = bound.is_a?(Float) && bound.infinite?

          def other(value, local, number)
            _, encode = Types.encoders.find { |klass, _| klass === value }
            return [encode.call(value)] if encode
            return array(value.to_a, local, number) if a_set?(value)
            return [TIMESTAMPTZ, time(value.to_time, local)] if a_time?(value)
            if Object.const_defined?("ActiveSupport::Duration") && ActiveSupport::Duration === value
              return [INTERVAL, value.iso8601]
            end

            raise TypeError, "argument #{number} has a value of the class #{value.class}, which cannot be bound to " \
              "a parameter: bind an Integer, Float, BigDecimal, String, Symbol, true, false, nil, Date, Time, " \
              "Duration, Array, Range, Hash, IPAddr, or an object of a class that " \
              "Heddle::DB::PostgreSQL.register_type(…, encode:) got"
          end

          # 24 hours are bound as a time: the server converts the time 24:00:00 to an interval of 24 hours, but such an
          # interval to the time 00:00:00. In a COPY, which has no types, the text must be valid as both.
          def duration(value)
            return [INTERVAL, "#{value.microseconds} microseconds"] if value.microseconds.abs >= LONG

            [(value == END_OF_DAY) ? TIME : INTERVAL, value.to_s]
          end

          def a_set?(value) = defined?(Set) && Set === value

          def a_time?(value) = value.respond_to?(:acts_like?) && value.acts_like?(:time)

          def numeric(value)
            return "NaN" if value.nan?
            return (value > 0) ? "Infinity" : "-Infinity" if value.infinite?

            EXPONENTS.cover?(value.exponent) ? value.to_s("F") : value.to_s
          end

          # The local digits go with the local zone: a timestamp without a zone takes the digits alone.
          def time(value, local)
            value = local ? value.getlocal : value.getutc
            year = value.year
            offset = value.utc_offset.abs
            zone = format("%s%02d:%02d:%02d", (value.utc_offset < 0) ? "-" : "+", offset / 3600, offset / 60 % 60,
              offset % 60)
            format("%04d-%s.%06d%s%s", (year < 1) ? 1 - year : year, value.strftime("%m-%d %H:%M:%S"), value.usec, zone,
              (year < 1) ? " BC" : "")
          end

          def date(value)
            return (value.infinite? > 0) ? "infinity" : "-infinity" if value.infinite?

            value = Calendar.gregorian(value)
            year = value.year
            format("%04d-%02d-%02d%s", (year < 1) ? 1 - year : year, value.month, value.day, (year < 1) ? " BC" : "")
          end

          def json(value, number)
            require "json"
            JSON.generate(value)
          rescue JSON::GeneratorError => error
            raise TypeError, "argument #{number} has a Hash that is no JSON: #{error.message}"
          end

          # "{1,NULL,\"a\"}"; from "Array Input and Output Syntax" of the manual.
          def array(values, local, number)
            types = []
            # The only type whose values have commas of their own outside brackets.
            delimiter = values.flatten.any?(Box) ? ";" : ","
            text = elements(values, types, delimiter, local, number)
            [array_type(types.uniq, values), text]
          end

          def array_type(types, values)
            return ARRAYS.fetch(types.first, ANY) if types.one?
            return ARRAYS.fetch(span_type(values.flatten.compact)) if !types.empty? && (types - SPANS).empty?
            return ANY if types.empty? || !(types - NUMBERS).empty?

            ARRAYS.fetch(types.max_by { |type| NUMBERS.index(type) })
          end

          def span_type(values)
            of_day = values.all? { |value| Duration === value && TIMES_OF_DAY.cover?(value) }
            of_day ? TIME : INTERVAL
          end

          def elements(values, types, delimiter, local, number)
            parts = values.map do |value|
              next "NULL" if value.nil?
              next elements(value, types, delimiter, local, number) if value.is_a?(Array)

              type, text, quoted = element(value, local, number)
              types << type
              quoted ? quote(text) : text
            end
            "{#{parts.join(delimiter)}}"
          end

          def element(value, local, number)
            case value
            when Integer then [integer_type(value), value.to_s, false]
            when Float then [FLOAT8, value.to_s, false]
            when true, false then [BOOL, value ? "t" : "f", false]
            when Symbol then [ANY, value.name, true]
            when String then string_element(value)
            else
              type, text, binary = convert(value, local, number)
              return element(type, local, number) if text.nil? # what a registered class makes of it
              raise TypeError, "argument #{number} has an Array with bytes of a type" if binary

              [type, text, true]
            end
          end

          def string_element(value)
            return [BYTES, "\\x#{value.unpack1("H*")}", true] if value.encoding == Encoding::BINARY

            [ANY, value.encode(Encoding::UTF_8), true]
          end

          def integer_type(value)
            case value
            when INT4_VALUES then INT4
            when INT8_VALUES then INT8
            else NUMERIC
            end
          end

          def quote(text) = "\"#{text.gsub(/["\\]/) { |special| "\\#{special}" }}\""

          # "[1,5)"; from "Range Input/Output" of the manual.
          def range(value, local, number)
            endless = whole_to_infinity?(value)
            ends = [value.begin, value.end].map { |bound| range_end(bound, endless, local, number) }
            "[#{ends.join(",")}#{value.exclude_end? ? ")" : "]"}"
          end

          def bounds(value, local, number)
            return "empty" if value.empty?

            ends = [value.begin, value.end].map { |bound| bound.nil? ? "" : bound_text(bound, local, number) }
            "#{value.exclude_begin? ? "(" : "["}#{ends.join(",")}#{value.exclude_end? ? ")" : "]"}"
          end

          # A range of whole numbers with an infinite end has no end: Ruby programs write 1..Float::INFINITY for 1..
          def range_end(bound, endless, local, number)
            return "" if bound.nil? || (endless && infinite?(bound))

            bound_text(bound, local, number)
          end

          def bound_text(bound, local, number)
            return quote(bound.to_s) if bound.is_a?(Integer) || bound.is_a?(Float)

            quote(element(bound, local, number)[1])
          end
        end
      end
      private_constant :Parameters
    end
  end
end
