# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # Sets up the session after the log-in: the time zone of NOW() and of TIMESTAMP columns.
      module Session
        # Where the system's zone is named, and what stands before the name.
        LOCALTIME = "/etc/localtime"
        ZONES = %r{/zoneinfo/(?:posix/|right/)?}
        NAME = %r{\A[A-Za-z][A-Za-z0-9_+/-]*\z}
        DAY = 86_400
        private_constant :LOCALTIME, :ZONES, :NAME, :DAY

        class << self
          # @param driver [Driver]
          # @param time_zone [:utc, :local]
          # @return [String, nil] the zone to set; nil if it is the server's own
          # @raise [LoginFailed] when the server does not know the zone of this process
          def zone(driver, time_zone)
            (time_zone == :local) ? local_zone(driver) : "+00:00"
          end

          private

          # Finds a zone of the server's with this process's hours: the server's current zone, the zone of the same
          # name, or an offset if there is no summer time.
          def local_zone(driver)
            moments = Array.new(9) { |quarter| Time.now.to_i + (quarter - 4) * 91 * DAY }
            offsets = moments.map { |moment| Time.at(moment).utc_offset }.uniq
            return if same?(driver, moments)

            zones = [zone_name, (offset(offsets.first) if offsets.one?)].compact
            zones.each do |zone|
              return zone if !driver.command("SET time_zone = '#{zone}'").is_a?(ServerError) && same?(driver, moments)
            end
            raise LoginFailed, "#{driver.stream.peer} does not know the time zone of this process " \
              "(#{zone_name || Time.now.zone}), but time_zone: :local needs it: " \
              "load the server's zones (mysql_tzinfo_to_sql), or use time_zone: :utc"
          end

          # Whether the server's zone and ours agree at each of the moments.
          def same?(driver, moments)
            shown = moments.map { |moment| "CAST(FROM_UNIXTIME(#{moment}) AS CHAR)" }
            result = driver.command("SELECT #{shown.join(", ")}")
            if result.is_a?(ServerError)
              raise LoginFailed, "#{driver.stream.peer} does not say its time: #{result.message}"
            end

            result.rows.first == moments.map { |moment| Time.at(moment).strftime("%Y-%m-%d %H:%M:%S") }
          end

          def zone_name
            zone = ENV["TZ"]&.delete_prefix(":")
            zone = File.realpath(LOCALTIME) if zone.nil?
            zone = zone.split(ZONES).last.to_s
            zone if zone.match?(NAME)
          rescue SystemCallError
            nil
          end

          def offset(seconds)
            format("%s%02d:%02d", (seconds < 0) ? "-" : "+", seconds.abs / 3600, seconds.abs / 60 % 60)
          end
        end
      end
    end
  end
end
