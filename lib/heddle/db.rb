# frozen_string_literal: true

require_relative "stream"
require_relative "without_password"
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
    autoload :Column, File.expand_path("db/column", __dir__)
    autoload :Connection, File.expand_path("db/connection", __dir__)
    autoload :Duration, File.expand_path("db/duration", __dir__)
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
      # @param url [String] <tt>mysql://user:password@host:port/base</tt>; what follows a "?" are further options as
      #   Strings, such as <tt>?socket=/run/mysqld.sock</tt>
      # @param timeout [Numeric, nil] seconds that any one operation may take in all: a query with all its rows, a connect
      # @param connect_timeout [Numeric, nil] seconds for look-up, connect, TLS and log-in together
      # @param statement_cache [:transaction, :always, :never] when a statement stays prepared to be used again
      # @param statement_cache_size [Integer] how many do, at most
      # @param options what the kind of database knows besides; see {MySQL::Driver}
      # @return [Connection]
      # @raise [ArgumentError] for a URL that is none, or names what is not known
      # @raise [LoginFailed, ConnectionLost, SystemCallError, SocketError, DeadlineExceeded]
      def connect(url, timeout: nil, connect_timeout: timeout, statement_cache: :transaction, statement_cache_size: 100, **options)
        address = parse(url)
        driver = driver_for(address.delete(:scheme)).connect(timeout: timeout, connect_timeout: connect_timeout, **address, **options)
        Connection.new(driver, statement_cache: statement_cache, statement_cache_size: statement_cache_size)
      end

      # @api private
      def register(scheme, driver)
        @drivers[scheme] = driver
      end

      private

      def parse(url)
        require "uri"
        uri = parsed(url)
        raise ArgumentError, "#{WithoutPassword[url.to_s].inspect} names no kind of database: mysql://…" unless uri.scheme

        parts = {scheme: uri.scheme, host: uri.hostname, port: uri.port, user: uri.user, password: uri.password,
                 database: uri.path.to_s.delete_prefix("/")}
        parts.transform_values! { |part| part.is_a?(String) ? decode(part) : part }
        parts.merge!(URI.decode_www_form(uri.query || "").to_h.transform_keys(&:to_sym))
        parts.reject { |_, part| part.nil? || part == "" }
      end

      # Ruby's own error, as a cause too, would show the password.
      def parsed(url)
        URI(url)
      rescue URI::InvalidURIError
        raise ArgumentError, "#{WithoutPassword[url.to_s].inspect} is no URL: write mysql://user:password@host/base, and special characters of the " \
          "password as %XX", cause: nil
      end

      def decode(text)
        URI.decode_www_form_component(text.gsub("+", "%2B"))
      end

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
