# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # Dates and times that come as text: those of databases whose columns hold what they were given, and those that a
      # driver gives in no other form unharmed.
      #
      # @api private
      module Texts
        DATE = /\A(\d{4})-(\d\d)-(\d\d)\z/
        TIMESTAMP = /\A(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?)?\z/
        private_constant :DATE, :TIMESTAMP

        class << self
          # @return [Date, nil] nil for any other text
          def date(text)
            year, month, day = DATE.match(text)&.captures&.map(&:to_i)
            Calendar.date(year, month, day) if year && Date.valid_civil?(year, month, day, Date::GREGORIAN)
          end

          # @param local [Boolean] whether it is of the process's time zone
          # @return [Time, nil]
          def timestamp(text, local)
            *digits, fraction = TIMESTAMP.match(text)&.captures
            return unless digits.any?

            year, month, day, hour, minute, second = digits.map(&:to_i)
            return unless hour < 24 && Date.valid_civil?(year, month, day, Date::GREGORIAN)

            Time.public_send(local ? :local : :utc, year, month, day, hour, minute, second + "0.#{fraction}0".to_r)
          end

          # @return [Duration, nil]
          def duration(text)
            Duration.parse(text)
          rescue ArgumentError
            nil
          end
        end
      end
      private_constant :Texts
    end
  end
end
