# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # The columns of a result, as the driver described them.
      #
      # @api private
      class Columns
        # By SQL type: appendix D of the "ODBC Programmer's Reference".
        TYPES = {
          -7 => :boolean, -6 => :integer, 5 => :integer, 4 => :integer, -5 => :integer, 7 => :float, 6 => :float,
          8 => :float, 3 => :decimal, 2 => :decimal, 91 => :date, 92 => :time, 93 => :datetime,
          -2 => :bytes, -3 => :bytes, -4 => :bytes, -11 => :uuid, 1 => :text, 12 => :text, -1 => :text, -8 => :text,
          -9 => :text, -10 => :text, 0 => :unknown
        }.freeze
        # By the kind of value, for types that the standard does not have.
        KINDS = %i[integer integer float boolean decimal date datetime time text bytes uuid integer].freeze
        UNSIGNED = 1
        NO_NULLS = 0
        private_constant :KINDS, :UNSIGNED, :NO_NULLS

        # @return [Array<String>]
        attr_reader :names

        # @param names [Array<String>]
        # @param descriptions [Array<Array>] of each column name, kind, SQL type, nullability, size, digits, table
        def initialize(names, descriptions)
          @names = names
          @descriptions = descriptions
        end

        # @return [Array<Column>]
        def to_a
          @to_a ||= @descriptions.map do |name, kind, type, nullable, size, digits, table|
            Column.new(name: name, type: TYPES[type] || KINDS.fetch(kind), native_type: type,
              nullable: nullable != NO_NULLS, unsigned: kind == UNSIGNED, scale: digits, length: size, table: table)
          end.freeze
        end
      end
    end
  end
end
