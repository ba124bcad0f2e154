# frozen_string_literal: true

module Heddle
  module DB
    # What {Pool} and {SQLite::Pool} do on one of their connections. The pool says from where it comes: from +writer+,
    # from +reader+, or for a statement from +pool_for+.
    module PoolCalls
      # Without a block returns an Enumerator, which holds a connection from its first row to its last, or until its
      # reader stops. After Enumerator#next that is when the GC has collected the Enumerator.
      #
      # @see Connection#each_row
      def each_row(sql, *arguments, **named, &block)
        return enum_for(:each_row, sql, *arguments, **named) unless block

        pool_for(sql).with { |connection| connection.each_row(sql, *arguments, **named, &block) }
        self
      end

      # @see Connection#list_tables
      def list_tables(schema: nil)
        reader.with { |connection| connection.list_tables(schema: schema) }
      end

      # @see Connection#table_exists?
      def table_exists?(name, schema: nil)
        reader.with { |connection| connection.table_exists?(name, schema: schema) }
      end

      # A statement that each connection of the pool prepares when it first runs it, and keeps prepared, among the
      # statements of +statement_cache_size+, unless +statement_cache+ is :never. Sends nothing yet: an error of the SQL
      # is raised when the statement runs.
      #
      # @param sql [String, VirtualStatement]
      # @return [PoolStatement]
      def prepare(sql)
        PoolStatement.of(self, sql)
      end

      # @see Connection#transaction
      def transaction(read_only: false, **options)
        raise ArgumentError, "a transaction needs a block: pool.transaction { |db| … }" unless block_given?

        (read_only ? reader : writer).with do |connection|
          connection.transaction(read_only: read_only, **options) { yield connection }
        end
      end

      # @see Connection#pipeline
      def pipeline(**options, &block)
        writer.with { |connection| connection.pipeline(**options, &block) }
      end
    end
    private_constant :PoolCalls
  end
end
