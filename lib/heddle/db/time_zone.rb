# frozen_string_literal: true

module Heddle
  module DB
    # The time zone of this process, for servers that are told of it (+time_zone: :local+).
    #
    # @api private
    module TimeZone
      # Where the system's zone is named, and what stands before the name.
      LOCALTIME = "/etc/localtime"
      ZONES = %r{/zoneinfo/(?:posix/|right/)?}
      # A name of the IANA database.
      NAME = %r{\A[A-Za-z][A-Za-z0-9_+/-]*\z}
      DAY = 86_400
      private_constant :ZONES, :DAY

      class << self
        # @return [String, nil] what TZ says, which may be a rule of POSIX such as CET-1CEST; else the IANA name, which
        #   is in the path that the zone's file is a link to. nil for a copy of a file, which has only the zone's hours
        def name
          zone = ENV["TZ"]&.delete_prefix(":")
          return "UTC" if zone == ""
          return zone if zone && !zone.start_with?("/")

          File.realpath(zone || LOCALTIME).split(ZONES, 2)[1]&.slice(NAME)
        rescue SystemCallError
          "UTC" # Ruby's own choice
        end

        # @return [Array<Integer>] instants of the last and the next year, at least one in each half of a year: zones
        #   that agree at all of them have the same hours now
        def moments = Array.new(9) { |quarter| Time.now.to_i + (quarter - 4) * 91 * DAY }

        # @return [Array<Integer>] seconds east of UTC; one number for a zone without summer time
        def offsets = moments.map { |moment| Time.at(moment).utc_offset }.uniq
      end
    end
    private_constant :TimeZone
  end
end
