# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # The columns of a statement. A column of a table has a declared type; any other has the types of its values. The
      # rest is in C: +names+ and +declared+ (the types that the tables declare, nil for an expression).
      #
      # @api private
      class Columns
        # The words of declared types, see ext/heddle/db/sqlite/values.c.
        WORDS = {"boolean" => :boolean, "bool" => :boolean, "datetime" => :datetime, "timestamp" => :datetime,
                 "timestamptz" => :datetime, "date" => :date, "time" => :time, "decimal" => :decimal,
                 "numeric" => :decimal, "json" => :json, "jsonb" => :json}.freeze
        # From "Determination Of Column Affinity" of SQLite's "Datatypes": the first that the type contains.
        AFFINITIES = {"int" => :integer, "char" => :text, "clob" => :text, "text" => :text, "blob" => :bytes,
                      "real" => :float, "floa" => :float, "doub" => :float}.freeze
        private_constant :WORDS, :AFFINITIES

        # @param rows [Array<Array>] of the result, for the types of columns without a declared one
        # @return [Array<Column>]
        def typed_by(rows)
          names.zip(declared).map.with_index do |(name, declared), index|
            Column.new(name: name, type: declared_type(declared) || stored_type(rows, index), native_type: nil,
              scale: declared.to_s[/\(\s*\d+\s*,\s*(\d+)\s*\)/, 1].to_i,
              length: declared.to_s[/\(\s*(\d+)/, 1].to_i, table: "")
          end.freeze
        end

        # @return [Array<Column>] without a result
        def to_a = typed_by([])

        private

        def declared_type(declared)
          return unless declared && !declared.empty?

          type = declared.downcase
          WORDS[type[/\A[^ (_]+/]] || AFFINITIES.find { |part, _| type.include?(part) }&.last
        end

        def stored_type(rows, index)
          case value = rows.find { |row| !row[index].nil? }&.at(index)
          when Integer then :integer
          when Float then :float
          when String then (value.encoding == Encoding::BINARY) ? :bytes : :text
          else :null
          end
        end
      end
      private_constant :Columns
    end
  end
end
