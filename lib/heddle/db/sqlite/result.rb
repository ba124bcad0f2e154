# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # A {DB::Result} whose columns may have the types of their values: SQLite stores a type with each value.
      class Result < DB::Result
        # @return [Array<Column>]
        def columns
          @columns ||= @description ? @description.typed_by(rows) : super
        end
      end
    end
  end
end
