# frozen_string_literal: true

module Sequel
  module HeddleMySQL
    # What makes Sequel's values of Heddle::DB's for MySQL and MariaDB.
    module MySQLCasts
      # By the protocol's numbers of types; those without a way are texts and bytes.
      WAYS = Array.new(247).tap do |ways|
        [2, 3, 4, 5, 6, 8, 9, 10, 13, 14].each { |type| ways[type] = :none }
        ways[0] = ways[246] = :decimal
        ways[1] = :boolean
        ways[7] = ways[12] = :time # TIMESTAMP, DATETIME
        ways[11] = :time_of_day
        ways[16] = :bits
      end.freeze
      # The other parts of a column's kind (Columns#kinds).
      BYTES = 1 << 8
      LENGTH = 9
      WHOLE = 1 << 17
      DAY = 24 * 60 * 60 * 1_000_000

      BLOB = SQL::Blob.method(:new)
      # As mysql2 and Trilogy have a DECIMAL without places, such as the sum of integers.
      INTEGER = ->(number) { number.to_i }
      BOOLEAN = ->(number) { number != 0 }
      # A TIME may be longer than a day, or negative: then it is not a time of day.
      TIME_OF_DAY = lambda do |duration|
        microseconds = duration.microseconds
        next duration unless microseconds.between?(0, DAY - 1)

        seconds, microseconds = microseconds.divmod(1_000_000)
        SQLTime.create(seconds / 3600, seconds / 60 % 60, seconds % 60, microseconds)
      end
      # As mysql2 and Trilogy have them: the bytes.
      BITS = Hash.new do |procs, bytes|
        procs[bytes] = ->(number) { [number].pack("Q>").byteslice(8 - bytes, bytes) }
      end
      (1..8).each { |bytes| BITS[bytes] }
      BITS.freeze
      private_constant :WAYS, :BYTES, :LENGTH, :WHOLE, :DAY, :BLOB, :INTEGER, :BOOLEAN, :TIME_OF_DAY, :BITS

      class << self
        # @param zone [Symbol, Object, nil] of the database
        # @return [Boolean] whether its times are those of this process
        def local?(zone) = zone.nil? || zone == :local

        # @param db [Database]
        # @param description [Heddle::DB::MySQL::Columns]
        # @param booleans [Boolean] whether TINYINT(1) and BIT(1) are booleans
        # @return [Array, nil] for RowHashes
        def of(db, description, booleans)
          any = nil
          casts = description.kinds.map do |kind|
            cast = of_kind(kind, db, booleans)
            any ||= cast
            cast
          end
          casts if any
        end

        private

        def of_kind(kind, db, booleans)
          type = kind & 0xff
          length = kind >> LENGTH & 0xff
          case WAYS[type]
          when nil then BLOB if kind & BYTES != 0
          when :boolean then BOOLEAN if booleans && length == 1
          when :time then time(db)
          when :time_of_day then TIME_OF_DAY
          when :bits then bits(length, booleans)
          when :decimal then INTEGER if kind & WHOLE != 0
          end
        end

        def bits(length, booleans)
          (length == 1 && booleans) ? BOOLEAN : BITS.fetch((length + 7) / 8)
        end

        # nil where the times are as the program wants them.
        def time(db)
          zone = db.timezone
          return ->(time) { db.to_application_timestamp(time.strftime("%F %T.%6N")) } unless simple?(zone)

          wanted = Sequel.application_timezone
          return if Sequel.datetime_class == Time && (wanted.nil? || wanted == zone || (zone.nil? && wanted == :local))

          db.method(:to_application_timestamp)
        end

        def simple?(zone) = zone.nil? || zone == :local || zone == :utc
      end
    end
    private_constant :MySQLCasts
  end
end
