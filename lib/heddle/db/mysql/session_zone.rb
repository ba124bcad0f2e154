# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # Finds the time zone of a session, also of one by ODBC, which NOW() and TIMESTAMP columns have.
      module SessionZone
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
            moments = TimeZone.moments
            offsets = TimeZone.offsets
            return if same?(driver, moments)

            zones = [zone_name, (offset(offsets.first) if offsets.one?)].compact
            zones.each do |zone|
              return zone if !driver.command("SET time_zone = '#{zone}'").is_a?(ServerError) && same?(driver, moments)
            end
            raise LoginFailed, "#{driver.description} does not know the time zone of this process " \
              "(#{zone_name || Time.now.zone}), but time_zone: :local needs it: " \
              "load the server's zones (mysql_tzinfo_to_sql), or use time_zone: :utc"
          end

          # Whether the server's zone and ours agree at each of the moments.
          def same?(driver, moments)
            shown = moments.map { |moment| "CAST(FROM_UNIXTIME(#{moment}) AS CHAR)" }
            result = driver.command("SELECT #{shown.join(", ")}")
            if result.is_a?(ServerError)
              raise LoginFailed, "#{driver.description} does not say its time: #{result.message}"
            end

            result.rows.first == moments.map { |moment| Time.at(moment).strftime("%Y-%m-%d %H:%M:%S") }
          end

          # MySQL knows no rules of POSIX.
          def zone_name = TimeZone.name&.slice(TimeZone::NAME)

          def offset(seconds)
            format("%s%02d:%02d", (seconds < 0) ? "-" : "+", seconds.abs / 3600, seconds.abs / 60 % 60)
          end
        end
      end
      private_constant :SessionZone
    end
  end
end
