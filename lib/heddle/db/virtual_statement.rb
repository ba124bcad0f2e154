# frozen_string_literal: true

module Heddle
  module DB
    # A statement that belongs to no connection; see {DB.virtual_statement}.
    class VirtualStatement
      TYPES = %i[mysql mariadb postgresql].freeze
      private_constant :TYPES

      # @api private
      def initialize(texts, block)
        if texts.empty? == block.nil?
          raise ArgumentError, "virtual_statement needs a text for each database (mysql: \"…\", postgresql: \"…\"), " \
            "or a block that returns it"
        end
        unless (unknown = texts.keys - TYPES).empty?
          raise ArgumentError, "no database #{unknown.join(", ")}: the databases are #{TYPES.join(", ")}"
        end

        @block = block
        @texts = texts.transform_values { |sql| checked(sql) }
      end

      # @param database_type [:mysql, :mariadb, :postgresql]
      # @return [String] the text for this database
      # @raise [ArgumentError] when it has none
      def sql(database_type)
        @texts[database_type] || remembered(database_type) || (@texts[:mysql] if database_type == :mariadb) ||
          raise(ArgumentError, "this statement has no text for #{database_type}: it has one for " \
            "#{@texts.keys.join(" and ")}")
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{@texts}>"
      end
      alias_method :to_s, :inspect

      private

      def remembered(database_type)
        @texts = @texts.merge(database_type => checked(@block.call(database_type))) if @block
        @texts[database_type]
      end

      def checked(sql)
        return -sql if sql.is_a?(String)

        raise TypeError, "the text of a statement is a String, not #{sql.inspect}"
      end
    end
  end
end
