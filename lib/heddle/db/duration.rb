# frozen_string_literal: true

module Heddle
  module DB
    # A span of time, the value of a TIME column: with a sign, up to 838 hours, in microseconds.
    class Duration
      include Comparable

      # @return [Integer]
      attr_reader :microseconds

      # @param text [String] "-12:34:56.789"
      # @return [Duration]
      def self.parse(text)
        raise ArgumentError, "#{text.inspect} is not a time such as -12:34:56.789" unless text.is_a?(String)

        match = /\A(-)?(\d+):([0-5]?\d):([0-5]?\d)(?:\.(\d{1,6}))?\z/.match(text)
        raise ArgumentError, "#{text.inspect} is not a time such as -12:34:56.789" unless match

        whole = (match[2].to_i * 60 + match[3].to_i) * 60 + match[4].to_i
        all = whole * 1_000_000 + match[5].to_s.ljust(6, "0").to_i
        new(match[1] ? -all : all)
      end

      # @param microseconds [Integer] to bind the Duration, at most 838 hours, as in TIME
      # @raise [ArgumentError]
      def initialize(microseconds)
        unless microseconds.is_a?(Integer)
          raise ArgumentError, "microseconds must be an Integer, not #{microseconds.inspect}"
        end

        @microseconds = microseconds
        freeze
      end

      # @return [Rational] seconds
      def to_r
        Rational(microseconds, 1_000_000)
      end

      # @return [Float] seconds
      def to_f
        to_r.to_f
      end

      # @return [Integer, nil] nil if the other is not a Duration
      def <=>(other)
        microseconds <=> other.microseconds if other.is_a?(Duration)
      end

      # @return [Integer]
      def hash
        microseconds.hash
      end
      # Whether the other is a Duration of the same length.
      alias_method :eql?, :==

      # @return [String] "-12:34:56.789000", without a fraction of zero
      def to_s
        seconds, fraction = microseconds.abs.divmod(1_000_000)
        text = format("%s%02d:%02d:%02d", ("-" if microseconds < 0), seconds / 3600, seconds / 60 % 60, seconds % 60)
        fraction.zero? ? text : format("%s.%06d", text, fraction)
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{self}>"
      end
    end
  end
end
