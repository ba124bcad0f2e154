# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # A statement that the server has prepared; the rest is in C.
      class Prepared
        # @return [Array<Column>] what the server takes the parameters for
        def parameter_types
          types.zip(type_symbols).map { |oid, symbol| Column.new(type: symbol, native_type: oid) }
        end
      end
    end
  end
end
