# frozen_string_literal: true

module Heddle
  module DB
    # A statement that belongs to no connection; see {DB.virtual_statement}.
    class VirtualStatement
      # @api private
      def initialize(texts, block)
        if texts.empty? == block.nil?
          raise ArgumentError, "virtual_statement needs a text for each database " \
            "(#{types.map { |type| "#{type}: \"…\"" }.join(", ")}), or a block that returns it"
        end
        unless (unknown = texts.keys - types).empty?
          raise ArgumentError, "no database #{unknown.join(", ")}: the databases are #{types.join(", ")}"
        end

        @block = block
        @texts = texts.transform_values { |sql| checked(sql) }
      end

      # @param database_type [Symbol] see {Connection#database_type}
      # @return [String] the text for this database
      # @raise [ArgumentError] when it has none
      def sql(database_type)
        @texts[database_type] || remembered(database_type) || @texts[Databases::TYPES[database_type]] ||
          raise(ArgumentError, "this statement has no text for #{database_type}: it has one for " \
            "#{@texts.keys.join(" and ")}")
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{@texts}>"
      end
      alias_method :to_s, :inspect

      private

      def types = Databases::TYPES.keys

      def remembered(database_type)
        @texts = @texts.merge(database_type => checked(@block.call(database_type))) if @block
        @texts[database_type]
      end

      def checked(sql)
        return -sql if sql.is_a?(String)

        raise TypeError, "the text of a statement must be a String, not #{sql.inspect}"
      end
    end
  end
end
