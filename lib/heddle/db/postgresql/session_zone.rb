# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # Names the time zone of a session as PostgreSQL knows it: a name of the IANA database, or POSIX's form.
      #
      # @api private
      module SessionZone
        class << self
          # @param time_zone [:utc, :local, :server, nil]
          # @return [String, nil] nil: the session keeps the zone that the server gives it
          # @raise [ArgumentError] when this process's zone has no name
          def name(time_zone)
            return if time_zone == :server

            (time_zone == :local) ? TimeZone.name || of_offset : "UTC"
          end

          private

          # POSIX counts to the west.
          def of_offset
            offsets = TimeZone.offsets
            unless offsets.one?
              raise ArgumentError, "time_zone: :local needs the name of this process's time zone, and " \
                "#{TimeZone::LOCALTIME} does not link to it: set TZ (TZ=Europe/Vienna), or use time_zone: :utc"
            end

            hours, minutes = offsets.first.abs.divmod(3600).then { |whole, rest| [whole, rest / 60] }
            east, west = (offsets.first < 0) ? %w[- +] : %w[+ -]
            format("<%s%02d%02d>%s%02d:%02d", east, hours, minutes, west, hours, minutes)
          end
        end
      end
      private_constant :SessionZone
    end
  end
end
