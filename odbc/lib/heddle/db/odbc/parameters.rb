# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # The form of those values that C does not write itself: a C type of ODBC, and what that takes.
      #
      # @api private
      module Parameters
        DATE = 91 # SQL_C_TYPE_DATE
        TIMESTAMP = 93 # SQL_C_TYPE_TIMESTAMP
        NUMERIC = 2 # SQL_C_NUMERIC; it goes as text, for drivers disagree on the struct
        TEXT = 1 # SQL_C_CHAR
        YEARS = (0..9999)
        DIGITS = 1000 # as in arguments.c
        private_constant :DATE, :TIMESTAMP, :NUMERIC, :TEXT, :YEARS, :DIGITS

        class << self
          # @param value any other than nil, Integer, Float, true, false, String and Symbol
          # @param local [Boolean] whether times are of the process's zone
          # @return [Array]
          # @raise [TypeError, ArgumentError]
          def form(value, local)
            case value
            when BigDecimal then decimal(value)
            when Time then time(local ? value.getlocal : value.getutc)
            when DateTime then form(Calendar.time(value), local)
            when Date then date(value)
            when Duration then [TEXT, value.to_s]
            else
              raise TypeError, "cannot bind a value of the class #{value.class} to a parameter: nil, true, false, " \
                "Integer, Float, BigDecimal, String, Symbol, Date, Time and Heddle::DB::Duration can be bound"
            end
          end

          private

          def date(value)
            value = Calendar.gregorian(value)
            [DATE, year(value), value.month, value.day]
          end

          # The standard's fraction counts nanoseconds; servers keep microseconds, and some refuse more.
          def time(value)
            [TIMESTAMP, year(value), value.month, value.day, value.hour, value.min, value.sec, value.usec * 1000]
          end

          def decimal(value)
            raise ArgumentError, "cannot bind #{value} to a parameter: ODBC has no such number" unless value.finite?
            # Written out, 1e999999999 has a gigabyte.
            if value.exponent.abs > DIGITS
              raise ArgumentError, "cannot bind #{value} to a parameter: the limit is #{DIGITS} digits"
            end

            text = value.to_s("F").delete_suffix(".0")
            scale = text[/\.(\d+)/, 1].to_s.size
            [NUMERIC, text, text.count("0-9"), scale]
          end

          def year(value)
            return value.year if YEARS.cover?(value.year)

            raise ArgumentError, "cannot bind #{value} to a parameter: years go from 0 to 9999"
          end
        end
      end
    end
  end
end
