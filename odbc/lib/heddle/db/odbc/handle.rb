# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # A statement of the driver's; the rest is in C.
      #
      # @api private
      class Handle
        ParameterType = Struct.new(:type)
        private_constant :ParameterType

        # @return [Boolean] see {SQL#calls?}
        attr_accessor :calls

        # @return [Array<ParameterType>] :unknown where the driver does not tell
        def parameter_types
          parameter_codes.map { |code| ParameterType.new(Columns::TYPES.fetch(code, :unknown)) }
        end
      end
    end
  end
end
