# frozen_string_literal: true

module Sequel
  module HeddleSQLite
    # What makes Ruby's values of what SQLite stores, by the declared types of the columns: the same values as those of
    # Sequel's adapter +sqlite+.
    module SQLiteCasts
      NO = %w[0 false f no n].freeze

      class << self
        # @param timestamp [#call] makes a time of a value
        # @return [Hash{String => #call}]
        def procs(timestamp)
          {
            %w[date] => method(:date), %w[time] => method(:time), %w[bit bool boolean] => method(:boolean),
            %w[integer smallint mediumint int bigint] => method(:integer), %w[blob] => method(:blob),
            %w[numeric decimal money] => method(:decimal), %w[datetime timestamp] => timestamp,
            ["float", "double", "real", "dec", "fixed", "double precision"] => method(:float)
          }.each_with_object({}) { |(types, call), procs| types.each { |type| procs[type] = call } }
        end

        # @param db [Database]
        # @param description [Heddle::DB::SQLite::Columns]
        # @return [Array] for RowHashes
        def of(db, description)
          procs = db.conversion_procs
          description.declared.map do |declared|
            call = declared && procs[declared[/\A[^(]*/].downcase]
            call && fast(call, db)
          end
        end

        private

        # The way of RowHashes that does what the proc would do, and calls it for values of another form.
        def fast(call, db)
          return call unless call.is_a?(Method)

          case call.name
          when :integer, :float, :date then call.receiver.equal?(self) ? [call.name, call] : call
          when :to_application_timestamp then call.receiver.equal?(db) ? HeddleAdapter.time_cast(db, call) : call
          else call
          end
        end

        def boolean(value)
          value.is_a?(String) ? !NO.include?(value.downcase) : value != 0
        end

        def integer(value) = value.to_i

        def float(value) = value.to_f

        def decimal(value)
          BigDecimal(value.to_s)
        rescue ArgumentError
          value.to_s
        end

        def blob(value) = SQL::Blob.new(value.to_s)

        def date(value)
          case value
          when String then Sequel.string_to_date(value)
          when Integer, Float then Date.jd(value.to_i)
          end
        end

        def time(value)
          return Sequel.string_to_time(value) if value.is_a?(String)

          seconds, fraction = value.divmod(1)
          SQLTime.create(seconds / 3600, seconds % 3600 / 60, seconds % 60, (fraction * 1_000_000).round)
        end
      end
    end
    private_constant :SQLiteCasts
  end
end
