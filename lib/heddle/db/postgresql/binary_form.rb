# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # Values in the binary form of a type that the server named: those of a COPY that C does not write itself
      # (db/postgresql/copy_values.c), and the arguments of which only the type says what they are (Parameters.settled).
      # The server converts nothing: each value has the form of its type.
      #
      # @api private
      class BinaryForm
        # A value that the type does not take; the caller's error names its row and its column, too.
        class Unfit < StandardError
          attr_reader :kind

          def initialize(kind, message)
            @kind = kind
            super(message)
          end
        end

        KINDS = Protocol::KINDS.invert.freeze
        # Kinds whose form only the server can tell. During a COPY the server answers no query.
        UNREADABLE = %i[COMPOSITE RECORD MONEY SERVER].freeze
        INTEGERS = {INT2: [-2**15..2**15 - 1, "s>"], INT4: [-2**31..2**31 - 1, "l>"], INT8: [-2**63..2**63 - 1, "q>"],
                    UINT4: [0..2**32 - 1, "L>"], UINT8: [0..2**64 - 1, "Q>"]}.freeze
        DATES = (-2_451_545..2_145_031_948)
        TIMESTAMPS = (-211_813_488_000_000_000..9_223_371_331_199_999_999)
        JULIAN_DAY = 2_451_545 # of 2000-01-01
        EPOCH = 946_684_800 # of 2000-01-01
        DAY = 86_400_000_000
        TIMETZ = /\A(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?\z/
        LSN = %r{\A(\h{1,8})/(\h{1,8})\z}
        CIDR = 650
        # int2vector and oidvector count from 0.
        VECTORS = [22, 30].freeze
        DIMENSIONS = 6
        LONG = 200
        OWN = [Integer, Float, true, false, String, Symbol, BigDecimal, Time, Duration, Interval, Array, Hash, Range,
          PGRange, IPAddr, *GEOMETRY].freeze
        # Kinds whose values are made of others.
        MADE_OF_OTHERS = %i[ARRAY RANGE MULTIRANGE JSON JSONB HSTORE].freeze
        private_constant :MADE_OF_OTHERS, :KINDS, :UNREADABLE, :INTEGERS, :DATES, :TIMESTAMPS, :JULIAN_DAY, :EPOCH,
          :DAY, :TIMETZ, :LSN, :CIDR, :VECTORS, :DIMENSIONS, :LONG, :OWN

        # @param protocol [Protocol]
        # @param columns [Columns, nil] whose types, and the types in them, were looked up
        def initialize(protocol, columns = nil)
          @protocol = protocol
          @names = columns&.names
          @types = columns&.types
        end

        # @param oid [Integer] of a type that was looked up
        # @return [Parameters::Binary, Object] the value itself where its class decides: the type is that of a text, or
        #   does not take the value, so that the server says why
        def parameter(value, oid)
          base = Types.within(@protocol, oid).find { |type| !domain?(type) }
          return value unless MADE_OF_OTHERS.include?(kind_of(base))

          Parameters::Binary.new(oid, bytes(value, oid))
        rescue Unfit
          value
        end

        # @return [String, nil] the name of a column whose values cannot be read from a COPY
        def unreadable
          index = @types.index { |oid| Types.within(@protocol, oid).any? { |type| UNREADABLE.include?(kind_of(type)) } }
          @names[index] if index
        end

        # @param values [Array] one for each column
        # @param number [Integer] of the row, from 1
        # @return [Array<String, nil>] their bytes
        # @raise [TypeError, ArgumentError, RangeError]
        def row(values, number)
          values.first(@types.size).each_with_index.map do |value, index|
            bytes(value, @types[index])
          rescue Unfit => error
            raise error.kind, "row #{number}, column #{@names[index]}: #{error.message}", cause: nil
          end
        end

        private

        def domain?(oid) = kind_of(oid) == :DOMAIN

        def kind_of(oid) = KINDS.fetch(@protocol.type_of(oid)&.first, :SERVER)

        def unfit(value, kind)
          what = value.is_a?(String) ? "a text" : "a value of the class #{value.class}"
          raise Unfit.new(TypeError, "#{what} does not fit the type #{kind.to_s.downcase} in the binary form: give a " \
            "value of the type's own class, its bytes (a String in binary encoding), or use the text form")
        end

        def malformed(value, kind)
          raise Unfit.new(ArgumentError, "#{shown(value)} is not a text of the type #{kind.to_s.downcase}")
        end

        def beyond(value, kind)
          raise Unfit.new(RangeError, "#{shown(value)} is beyond the type #{kind.to_s.downcase}")
        end

        # Not the whole of a value that may be the reason for the error, by its size.
        def shown(value)
          case value
          when Integer then (value.bit_length > LONG) ? "a number of #{value.bit_length} bits" : value.to_s
          when String, Symbol then value.to_s.inspect.then { |text| (text.size > LONG) ? "#{text[0, LONG]}…" : text }
          when Array then "an Array"
          else value.inspect
          end
        end

        def local? = @protocol.local?

        # nil for nil
        def bytes(value, oid)
          return if value.nil?

          number, element = @protocol.type_of(oid)
          return bytes(value, element) if number == Protocol::KINDS[:DOMAIN]

          (number && @protocol.plain_bytes(value, number)) ||
            converted(value, oid, KINDS.fetch(number, :SERVER), element)
        end

        def converted(value, oid, kind, element)
          return value if value.is_a?(String) && value.encoding == Encoding::BINARY

          own = own_value(value, kind)
          return bytes(own, oid) unless own.equal?(value)

          case kind
          when :TEXT, :ENUM, :JSON then text(value, kind)
          when :JSONB, :VERSIONED then "\1".b + text(value, kind)
          when :ARRAY then array(value, oid, element)
          when :RANGE then range(value, element)
          when :MULTIRANGE then multirange(value, element)
          else scalar(value, oid, kind)
          end
        end

        # The value that an object of a registered class, or of another library's class, stands for.
        def own_value(value, kind)
          case value
          when DateTime then return Calendar.time(value)
          when Date, *OWN then return value
          end
          _, encode = Types.encoders.find { |klass, _| klass === value }
          return encode.call(value).then { |made| made.equal?(value) ? unfit(value, kind) : made } if encode
          return value.to_a if defined?(Set) && Set === value
          return value.to_time if value.respond_to?(:acts_like?) && value.acts_like?(:time)
          if Object.const_defined?("ActiveSupport::Duration") && ActiveSupport::Duration === value
            return of_parts(value, kind)
          end

          unfit(value, kind)
        end

        def of_parts(value, kind)
          parts = Hash.new(0).merge(value.parts)
          months = parts[:years] * 12 + parts[:months]
          days = parts[:weeks] * 7 + parts[:days]
          seconds = parts[:hours] * 3600 + parts[:minutes] * 60 + parts[:seconds]
          unfit(value, kind) unless months == months.to_i && days == days.to_i
          Interval.new(months.to_i, days.to_i, (seconds * 1_000_000).round)
        end

        def scalar(value, oid, kind)
          case kind
          when *INTEGERS.keys then integer(value, kind)
          when :FLOAT4, :FLOAT8 then float(value, kind)
          when :NUMERIC then numeric(value, kind)
          when :DATE then date(value, kind)
          when :TIMESTAMP, :TIMESTAMPTZ then timestamp(value, kind)
          when :TIME then time(value, kind)
          when :TIMETZ then timetz(value, kind)
          when :INTERVAL then interval(value, kind)
          when :INET then inet(value, oid, kind)
          when :LSN then lsn(value, kind)
          when :HSTORE then hstore(value, kind)
          when :VECTOR then vector(value, kind)
          when :UUID, :MACADDR, :BITS then value.is_a?(String) ? malformed(value, kind) : unfit(value, kind)
          else geometry(value, kind)
          end
        end

        # ---- text

        # As the text form of a COPY has it; json is made of values, too.
        def text(value, kind)
          return json(value, kind) if %i[JSON JSONB].include?(kind) && !value.is_a?(String) && !value.is_a?(Symbol)

          text = case value
          when true then "t"
          when false then "f"
          when String, Symbol, Integer, Float then value.to_s.encode(Encoding::UTF_8)
          else Parameters.convert(value, local?, 1)[1]
          end
          return text.b unless text.include?("\0")

          raise Unfit.new(ArgumentError, "a text with a NUL, which no text of PostgreSQL may have: it is bytes, " \
            "or damaged")
        rescue EncodingError => error
          raise Unfit.new(ArgumentError, error.message)
        end

        def json(value, kind)
          unfit(value, kind) unless [Hash, Array, Integer, Float, true, false].any? { |type| type === value }
          require "json"
          JSON.generate(value).b
        rescue JSON::JSONError => error
          raise Unfit.new(ArgumentError, error.message)
        end

        # ---- numbers

        def integer(value, kind)
          unfit(value, kind) unless value.is_a?(Integer)
          range, letter = INTEGERS.fetch(kind)
          range.cover?(value) ? [value].pack(letter) : beyond(value, kind)
        end

        def float(value, kind)
          unfit(value, kind) unless value.is_a?(Numeric)
          number = value.to_f
          beyond(value, kind) if number.infinite? && !(value.is_a?(Float) || value.is_a?(BigDecimal))
          @protocol.plain_bytes(number, Protocol::KINDS[kind]) || beyond(value, kind)
        end

        def numeric(value, kind)
          return malformed(value, kind) if value.is_a?(String)

          text = case value
          when Integer, Float then value.to_s
          when BigDecimal then Parameters.convert(value, local?, 1)[1]
          else unfit(value, kind)
          end
          @protocol.plain_bytes(text.encode(Encoding::UTF_8), Protocol::KINDS[kind]) || beyond(value, kind)
        end

        # ---- dates and times

        def infinite?(value) = value.is_a?(Float) && value.infinite?

        def date(value, kind)
          return [(value > 0) ? 2**31 - 1 : -2**31].pack("l>") if infinite?(value)

          value = digits(value).to_date.gregorian if value.is_a?(Time)
          unfit(value, kind) unless value.is_a?(Date)
          days = Calendar.gregorian(value).jd - JULIAN_DAY
          DATES.cover?(days) ? [days].pack("l>") : beyond(value, kind)
        end

        def timestamp(value, kind)
          return [(value > 0) ? 2**63 - 1 : -2**63].pack("q>") if infinite?(value)

          microseconds = case value
          when Time then since_epoch((kind == :TIMESTAMP) ? digits(value) : value)
          when Date then (kind == :TIMESTAMP) ? (Calendar.gregorian(value).jd - JULIAN_DAY) * DAY : unfit(value, kind)
          else unfit(value, kind)
          end
          TIMESTAMPS.cover?(microseconds) ? [microseconds].pack("q>") : beyond(value, kind)
        end

        def since_epoch(time) = (time.to_i - EPOCH) * 1_000_000 + time.usec

        # A time in UTC with the digits that it has in the zone of this connection.
        def digits(time)
          time = local? ? time.getlocal : time.getutc
          Time.utc(time.year, time.month, time.day, time.hour, time.min, time.sec + time.subsec)
        end

        def of_day(time) = ((time.hour * 60 + time.min) * 60 + time.sec) * 1_000_000 + time.usec

        def time(value, kind)
          microseconds = case value
          when Duration then value.microseconds
          when Time then of_day(digits(value))
          else unfit(value, kind)
          end
          (0..DAY).cover?(microseconds) ? [microseconds].pack("q>") : beyond(value, kind)
        end

        def timetz(value, kind)
          if value.is_a?(Time)
            time = local? ? value.getlocal : value.getutc
            return [of_day(time), -time.utc_offset].pack("q>l>")
          end
          unfit(value, kind) unless value.is_a?(String)
          match = TIMETZ.match(value) or malformed(value, kind)
          seconds = (match[1].to_i * 60 + match[2].to_i) * 60 + match[3].to_i
          offset = (match[6].to_i * 60 + match[7].to_i) * 60 + match[8].to_i
          [seconds * 1_000_000 + match[4].to_s.ljust(6, "0").to_i, (match[5] == "+") ? -offset : offset].pack("q>l>")
        end

        def interval(value, kind)
          case value
          when Duration then parts = [value.microseconds, 0, 0]
          when Interval then parts = [value.microseconds, value.days, value.months]
          else
            # Older servers would read an interval of 2**31 months.
            unfit(value, kind) unless infinite?(value) && @protocol.settings.fetch("server_version", "").to_i >= 17
            return ((value > 0) ? [2**63 - 1, 2**31 - 1, 2**31 - 1] : [-2**63, -2**31, -2**31]).pack("q>l>2")
          end
          fits = INTEGERS[:INT8][0].cover?(parts[0]) && parts.drop(1).all? { |part| INTEGERS[:INT4][0].cover?(part) }
          fits ? parts.pack("q>l>2") : beyond(value, kind)
        end

        # ---- addresses, places in the log

        def inet(value, oid, kind)
          address, bits = value.is_a?(IPAddr) ? [value, value.prefix] : parsed_address(value, kind)
          [address.ipv4? ? 2 : 3, bits, (oid == CIDR) ? 1 : 0, address.ipv4? ? 4 : 16].pack("C4") + address.hton
        end

        def parsed_address(value, kind)
          unfit(value, kind) unless value.is_a?(String)
          text, bits = value.split("/", 2)
          address = IPAddr.new(text.to_s)
          most = address.ipv4? ? 32 : 128
          bits = bits ? Integer(bits, 10) : most
          (0..most).cover?(bits) ? [address, bits] : malformed(value, kind)
        rescue ArgumentError
          malformed(value, kind)
        end

        def lsn(value, kind)
          unfit(value, kind) unless value.is_a?(String)
          match = LSN.match(value) or malformed(value, kind)
          [match[1].hex, match[2].hex].pack("N2")
        end

        # ---- values of numbers

        def floats(numbers, kind, letter = "G")
          numbers.each { |number| unfit(number, kind) unless number.is_a?(Numeric) }
          numbers.map(&:to_f).pack("#{letter}*")
        end

        def points(points, kind)
          unfit(points, kind) unless points.is_a?(Array) && points.all?(Point)
          floats(points.flat_map(&:to_a), kind)
        end

        def geometry(value, kind)
          case [kind, value]
          in [:POINT, Point] then points([value], kind)
          in [:LINE, Line] then floats(value.to_a, kind)
          in [:LSEG, LineSegment] | [:BOX, Box] then points(value.to_a, kind)
          in [:PATH, Path]
            points(value.points, kind).then { |rest| [value.closed ? 1 : 0, value.points.size].pack("CN") + rest }
          in [:POLYGON, Polygon] then points(value.points, kind).then { |rest| [value.points.size].pack("N") + rest }
          in [:CIRCLE, Circle] then points([value.center], kind) + floats([value.radius], kind)
          else unfit(value, kind)
          end
        end

        def vector(value, kind)
          unfit(value, kind) unless value.is_a?(Array)
          beyond(value.size, kind) if value.size > 16_000
          [value.size, 0].pack("n2") + floats(value, kind, "g")
        end

        # ---- values in values

        def with_length(bytes) = bytes ? [bytes.bytesize].pack("N") << bytes : "\xff\xff\xff\xff".b

        def hstore(value, kind)
          unfit(value, kind) unless value.is_a?(Hash)
          value.each_with_object([value.size].pack("N")) do |(key, item), bytes|
            unfit(key, kind) if key.nil?
            bytes << with_length(text(key, kind)) << with_length(item.nil? ? nil : text(item, kind))
          end
        end

        def array(value, oid, element)
          unfit(value, :ARRAY) unless value.is_a?(Array)
          kind = kind_of(element)
          dimensions = [depth(value) - (%i[MULTIRANGE VECTOR].include?(kind) ? 1 : 0), 1].max
          beyond(value, "array of #{DIMENSIONS} dimensions") if dimensions > DIMENSIONS
          sizes, items = flattened(value, dimensions)
          return [0, 0, element].pack("N3") if items.empty?

          parts = items.map { |item| bytes(item, element) }
          head = [dimensions, parts.include?(nil) ? 1 : 0, element]
          sizes.each { |size| head.push(size, VECTORS.include?(oid) ? 0 : 1) }
          parts.each_with_object(head.pack("N*")) { |part, whole| whole << with_length(part) }
        end

        def depth(value, known = {}.compare_by_identity)
          return 0 unless value.is_a?(Array)

          known.fetch(value) do
            known[value] = Float::INFINITY # if it contains itself
            known[value] = 1 + (value.map { |item| depth(item, known) }.max || 0)
          end
        end

        def flattened(value, dimensions)
          sizes = [value.size]
          (dimensions - 1).times do
            unless value.all? { |item| item.is_a?(Array) && item.size == value.first.size }
              raise Unfit.new(ArgumentError, "an Array whose Arrays differ in size, which no array of the server has")
            end

            sizes << value.first.size
            value = value.flatten(1)
          end
          [sizes, value]
        end

        # From range_recv of the server: flags, and the bounds that there are.
        def range(value, element)
          case value
          when Range
            whole = INTEGERS.key?(kind_of(element)) # Ruby programs write 1..Float::INFINITY for 1..
            range_bytes(*[value.begin, value.end].map { |bound| bound unless whole && infinite?(bound) }, 2,
              value.exclude_end? ? 0 : 4, element)
          when PGRange
            return "\1".b if value.empty?

            range_bytes(value.begin, value.end, value.exclude_begin? ? 0 : 2, value.exclude_end? ? 0 : 4, element)
          else unfit(value, :RANGE)
          end
        end

        def range_bytes(first, last, lower, upper, element)
          flags = (first.nil? ? 8 : lower) | (last.nil? ? 16 : upper)
          [first, last].compact.each_with_object([flags].pack("C")) do |bound, whole|
            whole << with_length(bytes(bound, element))
          end
        end

        def multirange(value, element)
          unfit(value, :MULTIRANGE) unless value.is_a?(Array)
          value.each_with_object([value.size].pack("N")) { |range, whole| whole << with_length(bytes(range, element)) }
        end
      end
      private_constant :BinaryForm
    end
  end
end
