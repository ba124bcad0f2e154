# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # A statement that SQLite has prepared; the rest is in C.
      #
      # @api private
      class Prepared
        # @return [Array<Column>] SQLite takes any value for any parameter
        def parameter_types = Array.new(parameters) { Column.new(type: :null) }
      end
      private_constant :Prepared
    end
  end
end
