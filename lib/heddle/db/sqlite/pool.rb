# frozen_string_literal: true

require_relative "../sqlite"

module Heddle
  module DB
    module SQLite
      # One connection that writes, and several that only read. SQLite lets one connection write at a time, and with a
      # write-ahead log (+journal_mode: :wal+, the default) readers wait for nobody: so writers wait for each other in
      # this pool, in the order of their requests, and not in SQLite.
      #
      # A statement that begins with SELECT, VALUES or EXPLAIN goes to a reader, and so does a transaction that is
      # +read_only+. All others go to the writer, and so does everything in its transactions.
      #
      # @example
      #   pool = Heddle::DB::SQLite::Pool.new("sqlite:///var/lib/shop.db", readers: 4)
      #   pool.query_column("select name from items")
      #   pool.transaction { pool.exec("update items set price = price + 1") }
      class Pool
        include Queries
        include PoolCalls

        # What on_query returns: one of the writer, and one of the readers.
        #
        # @api private
        Listeners = Struct.new(:all) do
          def close
            all.each(&:close)
            nil
          end
        end
        SCHEMES = %w[sqlite sqlite3].freeze
        MEMORY = ":memory:"
        # A database in memory is lost with its connection.
        KEPT = {min: 1, max_lifetime: nil}.freeze
        private_constant :Listeners, :SCHEMES, :MEMORY, :KEPT

        # @param url [String] see {DB.connect}
        # @param readers [Integer] the most connections that read. A database in memory belongs to one connection: it
        #   has no readers, and stays open for as long as the pool
        # @param options see {DB::Pool#initialize}; +checkout_timeout+ bounds each wait for the writer or a reader
        # @raise [ArgumentError] see {DB.connect}; opens no connection yet
        def initialize(url, readers: 4, **options)
          raise ArgumentError, "size: is 1 for the writer: give the number of readers:" if options.key?(:size)

          unless SCHEMES.include?(Address.scheme(url))
            raise ArgumentError, "this pool is for addresses sqlite:…: for other databases use Heddle::DB::Pool"
          end

          _, settings = DB.settings(url, options.slice(*OptionChecks::ALL.keys))
          @path = settings[:database]
          if @path == MEMORY
            @readers = @writer = DB::Pool.new(url, size: 1, **options, **KEPT)
          else
            @writer = DB::Pool.new(url, size: 1, **options)
            @readers = DB::Pool.new(url, size: readers, **options, read_only: true)
          end
        end

        # Lends the block the writer, or a reader.
        #
        # @param read_only [Boolean] whether a reader will do
        # @yieldparam connection [Connection]
        # @return the block's value
        # @raise [PoolTimeout, PoolClosed] see {DB::Pool#with}
        def with(read_only: false, &block)
          raise ArgumentError, "Pool#with needs a block: pool.with { |db| … }" unless block

          (read_only ? reader : @writer).with(&block)
        end

        # On a connection of the pool.
        #
        # @return [Result] see {Connection#query}
        # @raise [PoolTimeout, PoolClosed] see {DB::Pool#with}
        def query(sql, *arguments) = routed(sql) { |pool| pool.query(sql, *arguments) }
        ruby2_keywords :query

        # Calls the block after each statement of the pool's connections, see {DB.on_query}.
        #
        # @yieldparam event [QueryEvent]
        # @return [#close]
        def on_query(&handler) = Listeners.new([@writer, @readers].uniq.map { |pool| pool.on_query(&handler) })

        # @return [Hash{Symbol => Hash}] of the writer and of the readers: how many connections there are, are free, and
        #   are waited for
        def stats = {writer: @writer.stats, readers: @readers.stats}

        # Closes all connections, see {ResourcePool#close}.
        #
        # @return [nil]
        def close
          [@readers, @writer].each(&:close)
          nil
        end

        # @return [Boolean]
        def closed? = @writer.closed?

        # @return [String]
        def inspect = "#<#{self.class} writer #{@writer.inspect}, readers #{@readers.inspect}>"

        private

        attr_reader :writer

        # A SELECT writes where a function of it does, and a reader refuses that before anything is written.
        def routed(sql)
          pool = pool_for(sql)
          yield pool
        rescue ReadOnly
          raise if pool.nil? || pool.equal?(@writer) || pool.joined?

          yield @writer
        end

        # What a function tells of the statement before, only the writer knows.
        def pool_for(sql)
          text = text_of(sql)
          (Statements.reads?(text) && !Statements.looks_back?(text)) ? reader : @writer
        end

        def text_of(sql)
          sql = sql.sql if BoundStatement === sql
          sql = sql.sql(:sqlite) if VirtualStatement === sql
          raise TypeError, "SQL must be a String, not #{sql.inspect}" unless sql.is_a?(String)

          sql
        end

        # In a transaction of the writer its own changes are to be seen. A reader cannot create the database.
        def reader
          return @writer if @writer.joined?

          @there ||= File.exist?(@path) || @writer.with { true }
          @readers
        end
      end
    end
  end
end
