# frozen_string_literal: true

require "connection_pool"
require "openssl"
require_relative "at_rest"

module ClientFuzz
  # The clients that the actors share: pools, and those gems that are installed.
  class Clients
    include AtRest

    SIZE = 4
    TIMEOUT = 1
    TABLE = "client_fuzz"
    SHARED = {size: 2, multiplex: 4}.freeze # so that tasks wait for places, too

    attr_reader :backends, :db, :memcached, :records, :sequels, :shared, :sqlite

    # @param gems [Boolean] whether ActiveRecord and Sequel connect, too
    def initialize(backends, gems:)
      @backends = backends
      @shared = {}
      start_mariadb if backends.mariadb
      start_shared(:postgresql, backends.postgresql) if backends.postgresql
      start_memcached if backends.memcached
      @records = {}
      @sequels = {}
      start_gems if gems
    end

    def mysql_options = server_options(@backends.mariadb)

    def server_options(place)
      server = place.server
      {host: place.host, port: place.port, username: server.username, password: server.password,
       database: server.database}
    end

    # Has MariaDB end two connections, which are not the admin's.
    def kill_some(random)
      return unless @admin

      ids = @admin.query_column("select id from information_schema.processlist where id <> connection_id()" \
        " and user = 'heddle'")
      ids.sample(2, random: random).each do |id|
        @admin.exec("kill connection #{id}")
      rescue Heddle::DB::ServerError
        nil # it has ended
      end
    end

    # How many rows the token's transaction has committed.
    def rows_of(token)
      @checks.with { |admin| admin.query_value("select count(*) from #{TABLE} where token = ?", token) }
    end

    def close
      [@db, @admin, @checks, @memcached, *@shared.values].compact.each(&:close)
      @sequels.each_value(&:disconnect)
      @records.each_value(&:remove_connection)
    end

    private

    def start_mariadb
      place = @backends.mariadb
      url = place.server.url.sub(/:\d+\//, ":#{place.port}/")
      @admin = Heddle::DB.connect(place.server.url, timeout: 10)
      @checks = ConnectionPool.new(size: 4, timeout: 10) { Heddle::DB.connect(place.server.url, timeout: 10) }
      def @checks.close = shutdown(&:close)
      @admin.exec("create table if not exists #{TABLE} (id int auto_increment primary key, token varchar(80), n int, " \
        "key (token)) engine=innodb")
      @db = Heddle::DB::Pool.new(url, size: SIZE, timeout: TIMEOUT)
      start_shared(:mysql, place)
    end

    def start_shared(name, place)
      url = place.server.url.sub(/:\d+\//, ":#{place.port}/")
      @shared[name] = Heddle::DB::Pool.new(url, timeout: TIMEOUT, **SHARED)
    end

    def start_memcached
      @memcached = Heddle::Memcached.new("127.0.0.1:#{@backends.memcached.port}", timeout: 0.5, pool: SIZE,
        retry_after: 0.05, max_retry_after: 0.1)
    end

    def start_gems
      require "active_record"
      require "heddle/active_record"
      require "heddle/mysql2"
      require "trilogy"
      require "pg"
      require "sequel"
      ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
      mysql = mysql_options if @backends.mariadb
      postgresql = server_options(@backends.postgresql) if @backends.postgresql
      record(:Trilogy, adapter: "trilogy", read_timeout: 1, **mysql) if mysql
      record(:Mysql2, adapter: "mysql2", **mysql) if mysql
      record(:PostgreSQL, adapter: "postgresql", **postgresql) if postgresql
      start_sqlite
      sequel(:trilogy, adapter: "trilogy", user: mysql[:username], **mysql.except(:username)) if mysql
      sequel(:mysql2, adapter: "mysql2", user: mysql[:username], **mysql.except(:username)) if mysql
      sequel(:postgres, adapter: "postgres", user: postgresql[:username], **postgresql.except(:username)) if postgresql
    end

    def start_sqlite
      @sqlite_folder = Dir.mktmpdir
      at_exit { FileUtils.rm_rf(@sqlite_folder) }
      record(:SQLite, adapter: "sqlite3", database: "#{@sqlite_folder}/base", timeout: 1000)
      @records[:SQLite].connection_pool.with_connection { |c| c.execute("create table #{TABLE} (token text, n int)") }
    end

    def record(name, **options)
      klass = Class.new(ActiveRecord::Base) { self.abstract_class = true }
      ClientFuzz.const_set(:"#{name}Record", klass)
      klass.establish_connection(pool: SIZE, checkout_timeout: 1, connect_timeout: 2, **options)
      @records[name] = klass
    end

    def sequel(name, **options)
      sequel = Sequel.connect(max_connections: SIZE, pool_timeout: 1, connect_timeout: 2, test: false, **options)
      @sequels[name] = sequel.extension(:heddle)
    end
  end
end
