# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # The value of an interval column: months, days and microseconds. PostgreSQL keeps them apart, because months
      # and days have no fixed length. Two are equal if all three numbers are. A {Duration} can be bound to an interval,
      # too.
      class Interval
        # @return [Integer]
        attr_reader :months, :days, :microseconds

        # @param months [Integer] 12 for each year
        # @param days [Integer]
        # @param microseconds [Integer]
        # @raise [ArgumentError]
        def initialize(months, days = 0, microseconds = 0)
          [months, days, microseconds].each do |number|
            next if number.is_a?(Integer)

            raise ArgumentError, "the parts of an interval must be Integers, not #{number.inspect}"
          end
          @months = months
          @days = days
          @microseconds = microseconds
          freeze
        end

        # Whether the other has the same months, days and microseconds.
        #
        # @param other [Object]
        # @return [Boolean]
        def ==(other)
          other.is_a?(Interval) && months == other.months && days == other.days && microseconds == other.microseconds
        end
        alias_method :eql?, :==

        # @return [Integer]
        def hash = [months, days, microseconds].hash

        # @return [String] as PostgreSQL reads it: "14 mons -3 days +04:05:06.789000"
        def to_s
          time = Duration.new(microseconds).to_s
          "#{months} mons #{days} days #{"+" unless time.start_with?("-")}#{time}"
        end

        # @return [String]
        def inspect = "#<#{self.class} #{self}>"
      end
    end
  end
end
