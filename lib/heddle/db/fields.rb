# frozen_string_literal: true

module Heddle
  module DB
    # Finds columns of a result by name or number, and takes their values out of its rows.
    #
    # @api private
    class Fields
      # @param names [Array<String>] of all columns
      def initialize(names)
        @names = names
      end

      # @param field [String, Symbol, Integer]
      # @return [Integer] the column's number, from 0
      # @raise [ArgumentError] for a column that does not exist, or a name that several columns have
      def index(field)
        case field
        when Integer
          return field if field.between?(0, @names.size - 1)
        when String, Symbol
          name = field.to_s
          found = @names.index(name)
          return found if found && found == @names.rindex(name)

          if found
            raise ArgumentError, "several columns are called #{name}: give the column's number, from 0, " \
              "or rename one in the statement (as)"
          end
        end
        raise ArgumentError,
          "no column #{field.inspect}: the columns are #{@names.join(", ")}, or 0 to #{@names.size - 1}"
      end

      # @param fields [String, Symbol, Integer, Array<String, Symbol, Integer>]
      # @return [Array<Integer>]
      def indexes(fields)
        Array(fields).map { |field| index(field) }
      end

      # @return [Proc] takes a row's value of the one field, or the Array of values of several
      def reader(fields)
        return indexes(fields).then { |list| ->(row) { row.values_at(*list) } } if fields.is_a?(Array)

        number = index(fields)
        ->(row) { row[number] }
      end
    end
    private_constant :Fields
  end
end
