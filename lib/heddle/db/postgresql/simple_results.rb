# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # Completes the results of a simple Query, whose values come as text: those of the types that C reads only in
      # binary go back to the server as parameters of their types, and come in binary then; so do dates in another style
      # than ISO's. So a statement has the same values alone and among others.
      #
      # @api private
      module SimpleResults
        # The symbols of these types.
        BINARY = %i[array composite geometry hstore inet interval multirange range time vector].freeze
        # The server reads no text for a row without a type's name.
        UNREADABLE = [2249, 2287].freeze
        MONEY = 790
        DATES = [1082, 1114, 1184].freeze
        # How many values the server is asked for at once: a result has at most 1664 columns.
        AT_ONCE = 1000
        # A text for a parameter of a type.
        Text = Struct.new(:type, :text)
        private_constant :BINARY, :UNREADABLE, :MONEY, :DATES, :AT_ONCE

        class << self
          # @param result [Result, ServerError] with the results that follow it
          # @return [Result, ServerError] the same; where the server cannot be asked (the transaction has failed), or
          #   refuses, values stay texts
          def complete(protocol, result)
            return result if result.is_a?(ServerError) || protocol.failed?

            values_of(result).each_slice(AT_ONCE) do |values|
              texts = values.map { |row, index, type| Text.new(type, row[index]) }
              known = read(protocol, texts.uniq) || break
              values.each_with_index { |(row, index, _), number| row[index] = known.fetch(texts[number]) }
            end
            result
          end

          private

          # @return [Array<(Array, Integer, Integer)>] rows, with the indices and the types of values
          def values_of(result)
            values = []
            while result
              rows = result.rows
              result.columns.each_with_index do |column, index|
                next unless (dates = DATES.include?(column.native_type)) || binary?(column)

                unread = dates ? rows.select { |row| String === row[index] } : rows.reject { |row| row[index].nil? }
                unread.each { |row| values << [row, index, column.native_type] }
              end
              result = result.following
            end
            values
          end

          def binary?(column)
            return false if UNREADABLE.include?(column.native_type)

            BINARY.include?(column.type) || column.native_type == MONEY
          end

          # @return [Hash{Text => Object}, nil] nil where the server refuses
          def read(protocol, texts)
            answer = protocol.run_new("select #{texts.each_index.map { |index| "$#{index + 1}" }.join(", ")}", texts)
            texts.zip(answer[0]).to_h unless answer.is_a?(ServerError)
          end
        end
      end
      private_constant :SimpleResults
    end
  end
end
