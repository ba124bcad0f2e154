# frozen_string_literal: true

module Sequel
  module HeddlePostgreSQL
    # What makes Ruby's values of PostgreSQL's texts: Sequel's conversion procs, and faster ways for those procs that
    # are Sequel's own.
    module PostgreSQLCasts
      BYTEA = 17
      DATE = 1082
      # Ways of RowHashes for Sequel's procs; those that are called with texts of other forms stand behind.
      WAYS = {16 => :boolean, 20 => :integer, 21 => :integer, 23 => :integer, 26 => :integer, 700 => :float,
              701 => :float, 1082 => :date, 1114 => :time, 1184 => :time, 1700 => :decimal}.freeze
      private_constant :BYTEA, :DATE, :WAYS

      class << self
        # Registers what the adapter has in place of Sequel's slower procs.
        #
        # @param procs [Hash{Integer => #call}] the database's
        # @return [Hash{Integer => (Symbol, #call)}] the procs for which there is a faster way, with its name
        def register(procs)
          procs[BYTEA] = method(:blob)
          procs[DATE] = Postgres::TYPE_TRANSLATOR_DATE
          WAYS.slice(*procs.keys).to_h { |oid, way| [oid, [way, procs[oid]].freeze] }.freeze
        end

        # @param db [Database]
        # @param own [Hash] what {.register} returned
        # @param description [Heddle::DB::PostgreSQL::Columns]
        # @return [Array] for RowHashes
        def of(db, own, description)
          procs = db.conversion_procs
          description.types.map do |oid|
            call = procs[oid]
            way = own[oid]
            next call unless way && way.last.equal?(call) # an extension has replaced it

            (way.first == :time) ? HeddleAdapter.time_cast(db, call) : way
          end
        end

        private

        # The server writes a bytea as \x00ff, or, before 9.0 or with bytea_output = 'escape', as \000\377.
        def blob(text)
          return SQL::Blob.new([text.byteslice(2..)].pack("H*")) if text.start_with?("\\x")

          SQL::Blob.new(text.b.gsub(/\\(\\|[0-3][0-7][0-7])/n) { ($1 == "\\") ? "\\" : $1.oct.chr })
        end
      end
    end
    private_constant :PostgreSQLCasts
  end
end
