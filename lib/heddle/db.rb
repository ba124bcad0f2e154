# frozen_string_literal: true

require_relative "stream"
require_relative "core/snapshot"
require_relative "db/errors"

module Heddle
  # Database clients that speak the wire protocol themselves. Every statement is prepared, closes of prepared statements
  # need no packets of their own, transactions nest, and every operation ends in time.
  #
  # Each database has a file lib/heddle/db/SCHEME.rb that registers a driver; {Connection} is their common part, which
  # knows them by {Driver} only.
  #
  # @example
  #   db = Heddle::DB.connect("mysql://user:password@127.0.0.1/base", timeout: 2)
  #   db.query("select id, name from t where id > ?", 7).each { |id, name| … }
  #   db.transaction { db.exec("update t set name = ? where id = ?", "x", 7) }
  module DB
    # Each is loaded when it is first named; db/common.rb, which every driver loads, names all.
    PARTS = %i[Address AtomicPipeline Backup BoundStatement Column Copy Driver Databases Duration Fields
      ForeignRows Functions List Listening Notices Options Pipeline Pipelines Placeholders Pool PoolCalls PoolStatement
      Queries QueryEvent QueryListener QueryListeners QueryWatch Result Statement StatementCache Tables TimeZone
      Transactions VirtualStatement WireDriver].freeze
    PARTS.each do |name|
      autoload name, File.expand_path("db/#{name.to_s.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase}", __dir__)
    end
    private_constant :PARTS

    # Its file comes with the first address of SQLite; a program may begin with the pool.
    module SQLite
      autoload :Pool, File.expand_path("db/sqlite/pool", __dir__)
    end

    private_constant :Protocol, :Multiplexer

    @drivers = {}

    class << self
      # Connects to a database.
      #
      # Each option may also follow a "?" in the URL: <tt>?socket=/run/mysqld.sock&tls=true&timeout=2</tt>. A keyword
      # takes precedence over the URL.
      #
      # {MySQL}, {PostgreSQL} and {SQLite} name their addresses and the options that each of them has besides these.
      #
      # @param url [String, URI] <tt>mysql://user:password@host:port/base</tt>; characters such as / # ? @ % in the
      #   password are written %2F %23 %3F %40 %25
      # @option options [Numeric, nil] :timeout (nil) seconds for a whole operation: a query with all its rows, a
      #   connect
      # @option options [Numeric, nil] :connect_timeout (timeout) seconds for look-up, connect, TLS and log-in together
      # @option options [:transaction, :always, :virtual, :never] :statement_cache (:transaction) when a statement stays
      #   prepared for reuse; :virtual: only those of {.virtual_statement} and {Pool#prepare}
      # @option options [Integer] :statement_cache_size (100) the most statements that stay prepared
      # @option options [Array<String, #call>, String, #call] :init ([]) statements that are run first, such as
      #   "set lock_timeout = '1s'", and Procs that get the {Connection}; in a pool on each new connection, and again
      #   when the pool has put its session back
      # @option options [String] :host ("127.0.0.1") for servers, as are the following options
      # @option options [Integer] :port the database's usual one
      # @option options [String, nil] :socket the path of a UNIX socket, instead of host and port
      # @option options [String] :user
      # @option options [String, nil] :password
      # @option options [String, nil] :database
      # @option options [Boolean, Hash, OpenSSL::SSL::SSLContext, nil] :tls (false) see {Stream::TLS.start}; with TLS
      #   nothing is sent in clear text
      # @option options [:utc, :local] :time_zone (:utc) the time zone of the connection and of times that have none:
      #   UTC, or the zone of this process. If the server does not know this zone, {LoginFailed} says what to do
      # @option options [Boolean] :kill_queries (true) whether a second connection tells the server to stop an
      #   interrupted query
      # @option options [Boolean] :server_deadlines (false) whether the server, which is PostgreSQL, gets the time that
      #   a statement's caller has left along with the statement, and stops it by itself then
      # @return [Connection]
      # @raise [ArgumentError] for a malformed URL, an unknown option, or an invalid value
      # @raise [LoginFailed, ConnectionLost, ConnectTimeout, SystemCallError, SocketError, OpenSSL::SSL::SSLError] each
      #   is an {Error} too
      # @raise [DeadlineExceeded] when a deadline around the call ends
      def connect(url, **options)
        connect_with(*settings(url, options))
      end

      # Calls the block after each statement of each connection of this process, see {Connection#on_query}.
      #
      # @yieldparam event [QueryEvent]
      # @return [QueryListener] its #close ends this
      def on_query(&handler) = QueryListeners.add(self, handler)

      # @api private
      attr_accessor :query_listeners

      # One statement with a text for each database. It replaces the SQL in calls of {Connection} and {Pool}. Each
      # connection that runs it keeps it prepared, among the statements of +statement_cache_size+, unless
      # +statement_cache+ is :never.
      #
      # @param texts [Hash{Symbol => String}] by {Connection#database_type}; for :mariadb that of :mysql is used, unless
      #   it has its own
      # @yieldparam database_type [Symbol]
      # @yieldreturn [String] the text; the block is called once for each database
      # @return [VirtualStatement]
      # @raise [ArgumentError] without texts and block, or with an unknown database
      # @example
      #   NOW = Heddle::DB.virtual_statement(mysql: "select sysdate()", postgresql: "select clock_timestamp()")
      #   db.query_value(NOW)
      def virtual_statement(**texts, &block) = VirtualStatement.new(texts, block)

      # A statement with the values of its parameters. It takes the place of SQL and values in the methods of
      # {Connection} and {Pool}, on any connection, any number of times.
      #
      # @param sql [String, VirtualStatement]
      # @param arguments the values, or keywords for parameters such as +:name+
      # @return [BoundStatement]
      # @example
      #   cheap = Heddle::DB.bind("select name from items where price < :most", most: 10)
      #   db.query_column(cheap)
      def bind(sql, *arguments) = BoundStatement.new(sql, arguments)
      ruby2_keywords :bind

      # The values of <tt>in (…)</tt>: one parameter becomes as many as there are values. It is the value of a named
      # parameter, or of a statement of {.bind}.
      #
      # @param values [Array]
      # @return [List]
      # @raise [ArgumentError] without values: SQL has no empty list
      # @example
      #   db.query("select * from items where id in (:ids)", ids: Heddle::DB.list([7, 8]))
      def list(values) = List.new(values)

      # What a URL and options stand for, once for many connections.
      #
      # @api private
      # @return [Array(Object, Hash)] for {.connect_with}
      def settings(url, options)
        driver = driver_for(Address.scheme(url))
        options = {statement_cache: :transaction, statement_cache_size: 100, timeout: nil}
          .merge!(driver.settings(url, options))
        options[:connect_timeout] = options[:timeout] unless options.key?(:connect_timeout)
        [driver, options]
      end

      # @api private
      def connect_with(driver, options)
        own = options.slice(:statement_cache, :statement_cache_size, :init)
        connection = Connection.new(driver.connect(**options.except(*own.keys)), timeout: options[:timeout], **own)
        connection.set_up
        complete = connection
      ensure
        connection&.close unless complete
      end

      # @api private
      def register(scheme, driver)
        @drivers[scheme] = driver
      end

      private

      def driver_for(scheme)
        @drivers[scheme] || begin
          unless Databases::SCHEMES.include?(scheme)
            raise ArgumentError, "no driver for #{scheme.inspect}: the schemes are #{Databases::SCHEMES.join(", ")}"
          end

          load_driver(scheme)
          @drivers.fetch(scheme)
        end
      end

      def load_driver(scheme)
        path = "heddle/db/#{scheme}"
        gem, needed = Databases::GEMS[scheme]
        return require_relative "db/#{scheme}" unless gem

        require path
      rescue LoadError => error
        raise unless gem && error.path == path

        raise LoadError, "the addresses #{scheme}:… need the gem #{gem}: install #{needed}, then add " \
          "`gem \"#{gem}\"` to the Gemfile, or run `gem install #{gem}`", cause: nil
      end
    end
  end
end

# Its class has methods in C, so no autoload would load the others.
require_relative "db/connection"
