# frozen_string_literal: true

require_relative "stream"
require_relative "db/errors"

module Heddle
  # Databases, by a client of our own that knows their wire: every statement is prepared, what was prepared is closed without
  # a packet of its own, transactions nest, and everything ends in time.
  #
  # A kind of database is a file lib/heddle/db/SCHEME.rb that registers a driver; {Connection} has what all have in common.
  #
  # @example
  #   db = Heddle::DB.connect("mysql://user:password@127.0.0.1/base", timeout: 2)
  #   db.query("select id, name from t where id > ?", 7).each { |id, name| … }
  #   db.transaction { db.exec("update t set name = ? where id = ?", "x", 7) }
  module DB
    autoload :Address, File.expand_path("db/address", __dir__)
    autoload :Column, File.expand_path("db/column", __dir__)
    autoload :Connection, File.expand_path("db/connection", __dir__)
    autoload :Duration, File.expand_path("db/duration", __dir__)
    autoload :Options, File.expand_path("db/options", __dir__)
    autoload :Pipeline, File.expand_path("db/pipeline", __dir__)
    autoload :Pool, File.expand_path("db/pool", __dir__)
    autoload :Result, File.expand_path("db/result", __dir__)
    autoload :Statement, File.expand_path("db/statement", __dir__)
    autoload :StatementCache, File.expand_path("db/statement_cache", __dir__)
    autoload :Transactions, File.expand_path("db/transactions", __dir__)

    @drivers = {}

    class << self
      # Connects to a database.
      #
      # Each option can also stand behind a "?" in the URL: <tt>?socket=/run/mysqld.sock&tls=true&timeout=2</tt>. A keyword
      # goes before the URL.
      #
      # @param url [String, URI] <tt>mysql://user:password@host:port/base</tt>; characters such as / # ? @ % in the password are
      #   written %2F %23 %3F %40 %25
      # @option options [Numeric, nil] :timeout (nil) seconds that any one operation may take in all: a query with all its
      #   rows, a connect
      # @option options [Numeric, nil] :connect_timeout (timeout) seconds for look-up, connect, TLS and log-in together
      # @option options [:transaction, :always, :never] :statement_cache (:transaction) when a statement stays prepared to be
      #   used again
      # @option options [Integer] :statement_cache_size (100) how many do, at most
      # @option options [String] :host ("127.0.0.1")
      # @option options [Integer] :port (3306)
      # @option options [String, nil] :socket the path of a UNIX socket, instead of host and port
      # @option options [String] :user
      # @option options [String, nil] :password
      # @option options [String, nil] :database
      # @option options [Boolean, Hash, OpenSSL::SSL::SSLContext, nil] :tls (false) see {Stream::TLS.start}; with TLS nothing
      #   is sent in the clear
      # @option options [:utc, :local] :time_zone (:utc) that of DATETIME columns and of the connection: UTC, or that of this
      #   process. A server that does not know the process's zone refuses the log-in, and the error says what to do
      # @option options [Boolean] :booleans (false) whether a TINYINT(1) is true or false; otherwise it is a number
      # @option options [String] :charset ("utf8mb4") also "utf8", "latin1", "ascii" or "binary"; with "binary" text is passed
      #   on as bytes, both ways
      # @option options [Boolean] :clear_password (false) whether a server may have the password itself (PAM, LDAP); under
      #   TLS only
      # @option options [String, :ask, nil] :server_public_key for caching_sha2_password without TLS: the server's RSA key
      #   (PEM), or :ask to believe the one that it sends
      # @option options [Boolean] :kill_queries (true) whether the server is told to stop what was interrupted, by a
      #   connection of its own
      # @return [Connection]
      # @raise [ArgumentError] for what is no URL, or an option that is not known, or has no such value
      # @raise [LoginFailed, ConnectionLost, ConnectTimeout, SystemCallError, SocketError, OpenSSL::SSL::SSLError] each is an
      #   {Error} too
      # @raise [DeadlineExceeded] of a deadline around it
      def connect(url, **options)
        connect_with(*settings(url, options))
      end

      # @api private What a URL and options stand for, once for many connections.
      #
      # @return [Array(Object, Hash)] for {.connect_with}
      def settings(url, options)
        address = Address.options(url)
        driver = driver_for(address.delete(:scheme))
        options = {statement_cache: :transaction, statement_cache_size: 100, timeout: nil}.merge!(Options.checked(address.merge(options)))
        options[:connect_timeout] = options[:timeout] unless options.key?(:connect_timeout)
        [driver, options]
      end

      # @api private
      def connect_with(driver, options)
        own = options.slice(:statement_cache, :statement_cache_size)
        Connection.new(driver.connect(**options.except(*own.keys)), **own)
      end

      # @api private
      def register(scheme, driver)
        @drivers[scheme] = driver
      end

      private

      def driver_for(scheme)
        @drivers[scheme] || begin
          known = /\A[a-z0-9]+\z/.match?(scheme) && File.exist?(File.expand_path("db/#{scheme}.rb", __dir__))
          raise ArgumentError, "there is no driver for #{scheme.inspect}: mysql and mariadb are known" unless known

          require_relative "db/#{scheme}"
          @drivers.fetch(scheme)
        end
      end
    end
  end
end
