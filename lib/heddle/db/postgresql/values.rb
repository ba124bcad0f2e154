# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # Values that C leaves to Ruby.
      #
      # @api private
      module Values
        EMPTY = 1
        LOWER_INCLUSIVE = 2
        UPPER_INCLUSIVE = 4
        LOWER_INFINITE = 8
        MASKS = {
          4 => Array.new(33) { |bits| (1 << 32) - (1 << (32 - bits)) }.freeze,
          16 => Array.new(129) { |bits| (1 << 128) - (1 << (128 - bits)) }.freeze
        }.freeze
        TIMESTAMP = /\A(\d{4,})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?([+-]\d\d(?::\d\d){0,2})?( BC)?\z/
        DATE = /\A(\d{4,})-(\d\d)-(\d\d)( BC)?\z/
        ESCAPED = /\\(?:\\|[0-3][0-7]{2})/n
        SPECIAL = {"NaN" => Float::NAN, "Infinity" => Float::INFINITY, "-Infinity" => -Float::INFINITY,
                   "infinity" => Float::INFINITY, "-infinity" => -Float::INFINITY}.freeze
        private_constant :EMPTY, :LOWER_INCLUSIVE, :UPPER_INCLUSIVE, :LOWER_INFINITE, :MASKS, :TIMESTAMP, :DATE,
          :ESCAPED, :SPECIAL

        class << self
          # IPAddr clears the bits of an address that its mask does not have; an inet keeps them.
          #
          # @param address [String] 4 or 16 bytes
          # @param bits [Integer] of the network
          # @return [IPAddr]
          def inet(address, bits)
            value = IPAddr.new_ntoh(address)
            mask = MASKS.fetch(address.bytesize)
            value.instance_variable_set(:@mask_addr, mask[bits]) if bits < mask.size - 1
            value
          end

          # @param flags [Integer] of the binary form
          # @return [Range, PGRange]
          def range(lower, upper, flags)
            return PGRange.new(nil, nil, exclude_end: true, empty: true) if flags & EMPTY != 0

            exclude_end = flags & UPPER_INCLUSIVE == 0
            exclude_begin = flags & (LOWER_INCLUSIVE | LOWER_INFINITE) == 0
            unless exclude_begin || infinite_time?(lower, upper) || infinite_time?(upper, lower)
              return Range.new(lower, upper, exclude_end)
            end

            PGRange.new(lower, upper, exclude_begin: exclude_begin, exclude_end: exclude_end)
          rescue ArgumentError # Ruby does not compare the bounds
            PGRange.new(lower, upper, exclude_begin: exclude_begin, exclude_end: exclude_end)
          end

          # Reads a value that a simple Query returned as text.
          #
          # @param type [Integer] OID
          # @param text [String]
          # @param local [Boolean] whether times are in the time zone of this process
          def parse(type, text, local)
            case type
            when 17 then bytes(text)
            when 700, 701 then SPECIAL.fetch(text) { Float(text) }
            when 1082 then SPECIAL.fetch(text) { date(text) }
            when 1114, 1184 then SPECIAL.fetch(text) { time(text, local) }
            else text
            end
          end

          private

          # Ruby compares no time with a Float. ActiveSupport does, and the same value must not depend on it.
          def infinite_time?(bound, other)
            Float === bound && !(other.nil? || Numeric === other)
          end

          # By bytea_output: in hexadecimals, or with a backslash only in front of another one or of octal digits.
          def bytes(text)
            return [text.delete_prefix("\\x")].pack("H*") if text.start_with?("\\x")

            text.b.gsub(ESCAPED) { |escaped| (escaped == "\\\\") ? "\\" : escaped[1..].oct.chr }
          end

          def date(text)
            match = DATE.match(text) or return text
            Calendar.date(year(match[1], match[4]), match[2].to_i, match[3].to_i)
          end

          def time(text, local)
            match = TIMESTAMP.match(text) or return text
            seconds = match[6].to_i + Rational(match[7].to_s.ljust(6, "0").to_i, 1_000_000)
            parts = [year(match[1], match[9]), *match.values_at(2, 3, 4, 5).map(&:to_i), seconds]
            return local ? Time.local(*parts) : Time.utc(*parts) unless match[8]

            time = Time.utc(*parts) - offset(match[8])
            local ? time.getlocal : time
          end

          def year(digits, before_christ) = before_christ ? 1 - digits.to_i : digits.to_i

          # @return [Integer] seconds
          def offset(text)
            hours, minutes, seconds = text[1..].split(":").map(&:to_i)
            size = (hours * 60 + minutes.to_i) * 60 + seconds.to_i
            text.start_with?("-") ? -size : size
          end
        end
      end
      private_constant :Values
    end
  end
end
