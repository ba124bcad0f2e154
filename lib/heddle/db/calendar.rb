# frozen_string_literal: true

module Heddle
  module DB
    # Dates before 1582-10-15. Ruby counts them by the Julian calendar, databases by the Gregorian one in all years. The
    # digits of a date are the same on both sides, so that what Date#to_s shows is stored, as by other libraries,
    # although the day is another one.
    #
    # @api private
    module Calendar
      class << self
        # @return [Date] with these digits. Ruby leaves out ten days, which databases have: these are Gregorian
        def date(year, month, day)
          Date.valid_civil?(year, month, day) ? Date.new(year, month, day) : Date.new(year, month, day, Date::GREGORIAN)
        end

        # @param number [Integer] the Julian day
        # @return [Date] with the digits that a database shows for this day
        def day(number)
          gregorian = Date.jd(number, Date::GREGORIAN)
          date(gregorian.year, gregorian.month, gregorian.day)
        end

        # @param date [Date]
        # @return [Date] with the same digits, of the Gregorian calendar
        # @raise [ArgumentError] for a day that only the Julian calendar has
        def gregorian(date)
          return date if date.gregorian?

          parts = [date.year, date.month, date.day]
          return Date.new(*parts, Date::GREGORIAN) if Date.valid_civil?(*parts, Date::GREGORIAN)

          raise ArgumentError, "cannot bind #{date} to a parameter: in the calendar of databases that year has no " \
            "29 February"
        end

        # @param date_time [DateTime]
        # @return [Time] with the same digits; DateTime#to_time has others, depending on Ruby's version
        # @raise [ArgumentError] see {.gregorian}
        def time(date_time)
          return date_time.to_time if date_time.gregorian?

          date = gregorian(date_time)
          second = date_time.sec + date_time.sec_fraction
          Time.new(date.year, date.month, date.day, date_time.hour, date_time.min, second,
            (date_time.offset * 86_400).to_i)
        end
      end
    end
    private_constant :Calendar
  end
end
