# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # What the text of a COPY says about the form of its data.
      #
      # @api private
      module CopyOptions
        NAMES = %w[delimiter null quote escape].freeze
        ESCAPES = {"b" => "\b", "f" => "\f", "n" => "\n", "r" => "\r", "t" => "\t"}.freeze
        private_constant :NAMES, :ESCAPES

        class << self
          # @param sql [String]
          # @return [Hash{Symbol => Object}] format:, and delimiter:, null:, quote:, escape: if the statement has them
          # @raise [ArgumentError]
          def of(sql)
            tokens = Link.copy_options(sql)
            options = {format: :text}
            tokens.each_with_index do |token, index|
              word = token.downcase.delete("'")
              options[:format] = word.to_sym if word == "csv" || word == "binary"
              next unless NAMES.include?(token.downcase)

              value = tokens[index + 1]
              value = tokens[index + 2] if value&.casecmp?("as")
              options[token.downcase.to_sym] = text(value) if value&.match?(/\A[eE]?'/)
            end
            options
          end

          private

          def text(token)
            inner = token[/\A[eE]?'(.*)'\z/m, 1] or raise ArgumentError, "a string of the COPY does not end: #{token}"
            inner = inner.gsub("''", "'")
            return inner unless token.match?(/\A[eE]/)

            inner.gsub(/\\(?:x(\h{1,2})|([0-7]{1,3})|(.))/m) do
              next $1.hex.chr if $1
              next $2.oct.chr if $2

              ESCAPES.fetch($3, $3)
            end
          end
        end
      end
      private_constant :CopyOptions
    end
  end
end
