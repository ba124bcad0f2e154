# frozen_string_literal: true

module Heddle
  module DB
    # What a statement gave: rows, or how many it changed. Made by drivers, which leave out what most have not: an object
    # with few variables needs no memory beside its own.
    class Result
      include Enumerable

      # @return [Array<Array>] empty for a statement without rows
      def rows
        @rows || EMPTY
      end
      alias_method :to_a, :rows

      # @return [Integer] rows that the statement changed
      attr_reader :affected_rows

      # @return [Integer, nil] the first number that the statement gave out for an AUTO_INCREMENT column
      attr_reader :last_insert_id

      # @return [Integer] how many warnings the server has
      def warnings
        @warnings || 0
      end

      # @return [Result, nil] what a procedure gave after this one
      attr_reader :following

      EMPTY = [].freeze
      private_constant :EMPTY

      # @return [Boolean] whether the statement gives rows, be it none
      def rows?
        !@rows.nil?
      end

      # @return [Array<Column>]
      def columns
        @columns ||= @shape ? @shape.to_a : EMPTY
      end

      # @return [Array<String>] names of the columns
      def fields
        @shape ? @shape.names : columns.map(&:name)
      end

      # @yieldparam row [Array]
      def each(&block)
        return enum_for(:each) { size } unless block

        rows.each(&block)
        self
      end

      # @return [Array<Hash{String => Object}>]
      def hashes
        names = fields
        rows.map { |row| names.zip(row).to_h }
      end

      # @return [Integer] number of rows
      def size
        rows.size
      end
      alias_method :length, :size

      def empty?
        rows.empty?
      end

      # @return [Array] a row
      def [](index)
        rows[index]
      end

      # For Marshal: caches keep results, and processes send each other some.
      #
      # @api private
      def marshal_dump
        [columns.map(&:to_h), @rows, affected_rows, last_insert_id, @warnings, following]
      end

      # @api private
      def marshal_load(parts)
        columns, @rows, @affected_rows, @last_insert_id, @warnings, @following = parts
        @columns = columns.map { |column| Column.new(**column) }.freeze
      end

      # @return [String]
      def inspect
        rows? ? "#<#{self.class} #{fields.join(", ")}: #{size} rows>" : "#<#{self.class} #{affected_rows} affected>"
      end
    end
  end
end
