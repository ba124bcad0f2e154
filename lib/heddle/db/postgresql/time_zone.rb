# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # Names the time zone of this process as PostgreSQL knows it: a name of the IANA database, or POSIX's form.
      #
      # @api private
      module TimeZone
        LOCALTIME = "/etc/localtime"
        ZONES = %r{/zoneinfo/(?:posix/|right/)?}
        NAME = %r{\A[A-Za-z][A-Za-z0-9_+/-]*\z}
        DAY = 86_400
        private_constant :LOCALTIME, :ZONES, :NAME, :DAY

        class << self
          # @param time_zone [:utc, :local, nil]
          # @return [String]
          # @raise [ArgumentError] when this process's zone has no name
          def name(time_zone)
            (time_zone == :local) ? of_process : "UTC"
          end

          private

          def of_process
            zone = ENV["TZ"]&.delete_prefix(":")
            return "UTC" if zone == ""

            (zone && !zone.start_with?("/")) ? zone : of_file(zone || LOCALTIME)
          end

          # The name is in the path that the file is a link to. A copy of a zone's file has only its hours.
          def of_file(path)
            name = File.realpath(path).split(ZONES, 2)[1].to_s
            name.match?(NAME) ? name : of_offset
          rescue SystemCallError
            "UTC" # Ruby's own choice
          end

          # POSIX counts to the west.
          def of_offset
            offsets = Array.new(9) { |quarter| Time.at(Time.now.to_i + (quarter - 4) * 91 * DAY).utc_offset }.uniq
            unless offsets.one?
              raise ArgumentError, "time_zone: :local needs the name of this process's time zone, and " \
                "#{LOCALTIME} is no link to it: set TZ (TZ=Europe/Vienna), or use time_zone: :utc"
            end

            hours, minutes = offsets.first.abs.divmod(3600).then { |whole, rest| [whole, rest / 60] }
            east, west = (offsets.first < 0) ? %w[- +] : %w[+ -]
            format("<%s%02d%02d>%s%02d:%02d", east, hours, minutes, west, hours, minutes)
          end
        end
      end
      private_constant :TimeZone
    end
  end
end
