# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # The columns of a result, as their definitions came; the rest is in C.
      class Columns
        TYPES = {
          0 => :decimal, 1 => :integer, 2 => :integer, 3 => :integer, 4 => :float, 5 => :float, 6 => :null,
          7 => :datetime, 8 => :integer, 9 => :integer, 10 => :date, 11 => :time, 12 => :datetime, 13 => :integer,
          14 => :date, 16 => :bits, 245 => :json, 246 => :decimal, 255 => :bytes
        }.freeze
        BINARY = 63
        NOT_NULL = 0x01
        UNSIGNED = 0x20
        private_constant :TYPES, :BINARY, :NOT_NULL, :UNSIGNED

        # @return [Array<Column>]
        def to_a
          @to_a ||= descriptions.map do |name, type, flags, charset, length, scale, table|
            Column.new(name: name, type: TYPES[type] || ((charset == BINARY) ? :bytes : :text), native_type: type,
              nullable: flags & NOT_NULL == 0, unsigned: flags & UNSIGNED != 0, scale: scale, length: length,
              table: table)
          end.freeze
        end
      end
    end
  end
end
