# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # The columns of a result; the rest is in C.
      class Columns
        # @return [Array<Column>]
        def to_a
          @to_a ||= descriptions.zip(type_symbols).map do |(name, type, table, _attribute, size, modifier), symbol|
            Column.new(name: name, type: symbol, native_type: type, scale: scale(type, modifier),
              length: (size < 0) ? [modifier - 4, 0].max : size, table: table)
          end.freeze
        end

        private

        # The modifier of a numeric has both its numbers of digits.
        def scale(type, modifier) = (type == 1700 && modifier >= 4) ? (modifier - 4) & 0x7ff : 0
      end
    end
  end
end
