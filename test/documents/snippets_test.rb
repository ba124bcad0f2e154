# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/servers"

# The Ruby of README.md and the guides runs as written, each block in a program of its own, in an empty folder, without
# Bundler and with no other gems than its reader is told to install: only its addresses become those of existing
# servers, and its time limits longer.
class SnippetsTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120 # a cold machine creates a database first

  DOCUMENTS = ["README.md", *Dir.glob("guides/*.md", base: ROOT)].sort.freeze

  # By the document and the heading above them.
  BLOCKS = DOCUMENTS.flat_map { |document|
    File.read(File.join(ROOT, document)).split(/^\#{1,3} (?=[^\n]*\n\n)/).drop(1).flat_map do |part|
      place = "#{File.basename(document, ".md")}: #{part.lines.first.strip}"
      part.scan(/^```ruby\n(.*?)^```$/m).flatten.map.with_index(1) { |block, number| ["#{place} #{number}", block] }
    end
  }.to_h.freeze

  # To Ruby an ellipsis is the name of a method.
  EVERYBODYS = "def …(*) = nil\n"

  # What a reader has before the block, what shows that it worked, what that prints, and how often the page was
  # requested.
  Reader = Struct.new(:before, :after, :prints, :requests)

  # The gems that a reader has installed beside Heddle; none for all other blocks.
  GEMS = {
    "jobs: Sidekiq 1" => %w[sidekiq],
    "jobs: A deadline for a job 1" => %w[sidekiq],
    "coming_from_async: Coming from Async 1" => %w[async],
    "coming_from_async: Inside Heddle.run 1" => %w[async],
    "executors_and_limits: An executor 1" => %w[concurrent-ruby],
    "executors_and_limits: An executor 2" => %w[concurrent-ruby],
    "executors_and_limits: Jobs of ActiveJob 1" => %w[activejob redis-client],
    "executors_and_limits: Semaphores and pools of resources 1" => %w[redis-client],
    "executors_and_limits: Limits for all processes 1" => %w[redis-client],
    "measuring: HTTP clients 1" => %w[heddle-lab],
    "memcached: Rails 1" => %w[activesupport],
    "puma: Rails on Puma 1" => %w[puma],
    "databases: ActiveRecord 1" => %w[activerecord],
    "databases: mysql2 and pg 1" => %w[mysql2 pg],
    "databases: The gem sqlite3 1" => %w[sqlite3],
    "databases: ODBC 1" => %w[heddle-odbc],
    "databases: Sequel on Heddle's own clients 1" => %w[sequel sqlite3],
    "databases: Sequel on other gems 1" => %w[sequel],
    "databases: SQLite 1" => %w[sqlite3],
    "what_is_it_doing: Prometheus 1" => %w[prometheus-client],
    "what_is_it_doing: OpenTelemetry 1" => %w[opentelemetry-metrics-sdk]
  }.freeze
  FOLDERS = {"heddle-odbc" => "#{ROOT}/odbc/lib", "heddle-lab" => "#{ROOT}/lab/lib"}.freeze # of gems of this checkout

  TABLES = <<~RUBY
    Heddle::DB.connect(ENV.fetch("DATABASE")).then do |db|
      %w[items log history].each { |table| db.exec("drop table if exists \#{table}") }
      db.exec("create table items (id int, name varchar(9), price int, stock int)")
      db.exec("create table log (at datetime)")
      db.exec("create table history (id int)")
      db.exec("insert into items values (7, 'lamp', 9, 3)")
    end
  RUBY
  ONE_PAGE = %(url = ENV.fetch("PAGE"); require "net/http")
  THREE_PAGES = %(url = ENV.fetch("PAGE"); urls = [url] * 3)
  # What a Gemfile and Rails' configuration are evaluated in.
  RAILS = <<~RUBY
    def gem(*, **) = nil
    require "heddle"; require "net/http"
    part = ->(name) { Struct.new(name).new }
    config = Struct.new(:cache_store, :active_support, :active_record)
      .new(nil, part.call(:isolation_level), part.call(:async_query_executor))
    url = ENV.fetch("PAGE", nil)
  RUBY

  PUMA = <<~RUBY
    def plugin(name) = @plugin = name
    def threads(*) = nil
    def workers(*) = nil
    def preload_app! = nil
  RUBY

  # What Rails and the application give a controller with a stream.
  STREAM = <<~RUBY
    def gem(*, **) = nil
    module ActionController
      module Live
        SSE = Struct.new(:stream) do
          def write(event) = event ? puts(event) : raise(StopIteration)
          def close = puts("closed")
        end
      end
    end
    class ApplicationController
      def response = @response ||= Struct.new(:headers, :stream).new({})
    end
    module Topic
      def self.subscribe = yield(Thread::Queue.new(%w[one two]).tap(&:close))
    end
  RUBY

  READERS = {
    "simulation: Testing against a bad network 1" =>
      Reader.new("$stderr.reopen(File::NULL)", "", /\Aseed 67: 2 orders\n10\.0\.0\.1:80 #1 < 1 reset, at [\d.]+ s\n\z/),
    "simulation: Testing against a bad network 2" => Reader.new("", "", ""),
    "README: Heddle 1" => Reader.new(THREE_PAGES, "p pages, page", %(["page", "page", "page"]\n"page"\n), 4),
    "getting_started: Install 1" => Reader.new("def gem(*, **) = nil", "", ""),
    "getting_started: What the build leaves out 1" =>
      Reader.new("", "", /\A(?:uring, )?(?:epoll, )?poll\n(?:uring|epoll|poll)\n\z/),
    "getting_started: Run tasks 1" => Reader.new(THREE_PAGES, "", "12\n", 3),
    "getting_started: Limit how many run at once 1" =>
      Reader.new(%(#{THREE_PAGES}; require "heddle"), "p pages", %(["page", "page", "page"]\n), 3),
    "getting_started: Limit how many run at once 2" =>
      Reader.new(%(#{THREE_PAGES}; require "heddle"; pool = Heddle::FiberPool.new(2); urls << "http://127.0.0.1:1/"),
        "p fetched, failed.map(&:class)", %(["page", "page", "page"]\n[Errno::ECONNREFUSED]\n), 3),
    "getting_started: Use it as Ruby's scheduler 1" => Reader.new(ONE_PAGE, "", "page\n", 1),
    "getting_started: Call code that blocks 1" =>
      Reader.new(%(require "heddle"; require "tempfile"; path = Tempfile.create.path), "", ""),
    "getting_started: See what tasks wait for 1" =>
      Reader.new(%(require "heddle"), "", /2 tasks on .*waits for.*"sleeper"/m),
    "getting_started: In a Rails app 1" =>
      Reader.new(<<~RUBY, "p Rails.config.heddle.to_a", "[true, true, 10]\n"),
        def gem(*, **) = nil
        Rails = Class.new do
          attr_reader :config
          def initialize = @config = Struct.new(:heddle).new(Struct.new(:net_http, :timeout, :deadline).new)
          def application = self
          def configure(&block) = instance_exec(&block)
        end.new
      RUBY
    "what_is_it_doing: Which task waits for what? 1" => Reader.new("", "", ""),
    "deadlines_and_cancellation: Deadlines 1" => Reader.new(ONE_PAGE, "", "", 1),
    "deadlines_and_cancellation: Clean-up 1" => Reader.new(<<~RUBY, "p cache.get(key)", "42\n"),
      require "heddle"
      cache = Heddle::Memcached.new(ENV.fetch("CACHE")); db = Heddle::DB.connect(ENV.fetch("DATABASE"))
      key, sql = "readme", "select 42"
      cache.delete(key)
    RUBY
    "deadlines_and_cancellation: Cancellation 1" => Reader.new(%(require "heddle"), "", "cancelled\n"),
    "deadlines_and_cancellation: Timeout.timeout 1" => Reader.new(%(require "heddle"), "", "execution expired\n"),
    "deadlines_and_cancellation: In a Rack application 1" => Reader.new(<<~RUBY, "", "503\n"),
      App = ->(_) { sleep }
      def use(middleware, *arguments) = @middleware = [middleware, arguments]
      def run(app) = p(@middleware.first.new(app, 0.1).call({}).first)
    RUBY
    "deadlines_and_cancellation: In a Rack application 2" => Reader.new(ONE_PAGE, "", "", 1),
    "jobs: Sidekiq 1" => Reader.new(<<~RUBY, <<~RUBY, "500 200\n"),
      module Sidekiq; class CLI; end; end # as in the command
    RUBY
      config = Sidekiq.default_configuration
      puts "\#{config.concurrency} \#{config.capsule("mail").concurrency}"
    RUBY
    "jobs: A deadline for a job 1" => Reader.new(<<~RUBY, <<~RUBY, "30\n"),
      require "sidekiq"; require "heddle/sidekiq"; require "net/http"
    RUBY
      p FetchJob.get_sidekiq_options["deadline"]
    RUBY
    "coming_from_async: Coming from Async 1" => Reader.new("", "", "page\n"),
    "coming_from_async: Inside Heddle.run 1" => Reader.new("", "", ":page\n"),
    "names_and_connects: Names and connects 1" => Reader.new(<<~RUBY, "p server.accept.class", "TCPSocket\n"),
      require "socket"
      server = TCPServer.new("127.0.0.1", 0); host, port = "localhost", server.local_address.ip_port
    RUBY
    "names_and_connects: Settings 1" =>
      Reader.new(%(require "heddle"), "p Heddle.resolver_cache, Heddle.fast_fallback", "nil\ntrue\n"),
    "connect_filter: Filters for connects 1" =>
      Reader.new(%(url = ENV.fetch("PAGE")), "", "refused: 127.0.0.1\n"),
    "connect_filter: A filter of your own 1" =>
      Reader.new(<<~RUBY, "p Heddle.connect_filter.call(own, 'db.example')", "true\n"),
        require "heddle"
        own = Addrinfo.tcp("10.0.0.5", 5432)
      RUBY
    "executors_and_limits: An executor 1" =>
      Reader.new(THREE_PAGES, "p pages.map(&:value)", %(["page", "page", "page"]\n), 3),
    "executors_and_limits: An executor 2" =>
      Reader.new(RAILS, "p config.active_record.async_query_executor.max_length", "20\n"),
    "executors_and_limits: Jobs of ActiveJob 1" =>
      Reader.new(%(ENV.fetch("REDIS_URL"); #{ONE_PAGE}), "p FetchJob.perform_now(url)", %("page"\n), 1),
    "executors_and_limits: Semaphores and pools of resources 1" =>
      Reader.new("", "p UPLOADS.available, REDIS.stats", /\A5\n\{:?open.*\}\n\z/),
    "executors_and_limits: Limits for all processes 1" =>
      Reader.new(%(ENV.fetch("REDIS_URL"); #{ONE_PAGE}), "p body", %("page"\n), 1),
    "processes: Processes 1" => Reader.new(%(urls = [ENV.fetch("PAGE")] * 2), "p bodies", %(["page", "page"]\n), 2),
    "processes: Processes 2" => Reader.new(<<~RUBY, "p $stored", "[1, 2, 3]\n"),
      require "heddle"
      jobs = Array.new(3) { |number| Rational(number) }; lines = %w[1 2 3]
      class Rational; def perform = self; end
      def parse(line) = Integer(line)
      def store(row) = ($stored ||= []) << row
    RUBY
    "net_http: Net::HTTP with less CPU 1" =>
      Reader.new(%(host = "127.0.0.1"), "p Heddle::NetHTTP.enabled?", /\A\{:?fast.*\}\nfalse\n\z/),
    "keep_alive: Keep-alive for Net::HTTP 1" =>
      Reader.new(%(require "uri"; uri = URI(ENV.fetch("PAGE"))), "p Heddle::NetHTTP.stats[:idle]",
        /\A\{:?opened.*\}\n0\n\z/, 3),
    "keep_alive: Which sessions share a connection 1" =>
      Reader.new(%(require "heddle/net_http"), "p Heddle::NetHTTP.stats[:opened]", "0\n"),
    "memcached: memcached 1" => Reader.new(<<~RUBY, <<~AFTER, %({:any=>"object"}\n"rendered"\n)),
      require "heddle"
      def render = "rendered"
      Heddle::Memcached.new(ENV.fetch("CACHE")).flush_all
    RUBY
      p cache.get("key"), cache.get("page")
    AFTER
    "memcached: Many tasks at once 1" => Reader.new(<<~RUBY, "p values", "[1, nil]\n"),
      require "heddle"
      cache = Heddle::Memcached.new(ENV.fetch("CACHE"))
      keys = %w[one missing]
      cache.set("one", 1)
    RUBY
    "memcached: Instead of dalli 1" => Reader.new(%(require "heddle"), "", "1\n"),
    "puma: Streams 1" => Reader.new(STREAM, "EventsController.new.index", "one\ntwo\nclosed\n"),
    "puma: Rails on Puma 1" =>
      Reader.new(RAILS + PUMA, "p @plugin, config.active_support.isolation_level", ":heddle\n:fiber\n"),
    "memcached: Rails 1" => Reader.new(RAILS, <<~AFTER, "2\n"),
      ActiveSupport::Cache.format_version = 7.1 if ActiveSupport.version < "7.2" # as Rails sets it
      store = ActiveSupport::Cache.lookup_store(*config.cache_store); store.write("two", 2); p store.read("two")
    AFTER
    "databases: Connect 1" => Reader.new("", "", "true\n"),
    "databases: Query 1" => Reader.new(<<~RUBY, "p db.query_value('select stock from items')", "7 lamp\n2\n"),
      require "heddle"; ids = [7]
      #{TABLES}
      db = Heddle::DB.connect(ENV.fetch("DATABASE"))
    RUBY
    "databases: Transactions 1" =>
      Reader.new(%(require "heddle"\n#{TABLES}), "p pool.query_value('select count(*) from log')", "2\n1\n"),
    "databases: Names, lists and bound statements 1" =>
      Reader.new(<<~RUBY, "p db.query_column(cheap)", %(["lamp"]\n)),
        require "heddle"
        #{TABLES}
        db = Heddle::DB.connect(ENV.fetch("DATABASE"))
      RUBY
    "databases: Results 1" => Reader.new(<<~RUBY, "p items.group(:price)", '[[9, [[7, "lamp"]]]]'),
      require "heddle"
      #{TABLES}
      db = Heddle::DB.connect(ENV.fetch("DATABASE"))
    RUBY
    "databases: Pools 1" =>
      Reader.new(%(require "heddle"\n#{TABLES}), "p find.query(7).first, pool.query_value(now).class",
        %(["lamp"]\nTime\n)),
    "databases: Statements that share connections 1" => Reader.new(<<~RUBY, "", "name\n" * 100),
      require "heddle"
      Heddle::DB.connect(ENV.fetch("POSTGRESQL")).query("drop table if exists items; create table items (id int, " \
        "name text); insert into items select n, 'name' from generate_series(1, 100) as n")
    RUBY
    "databases: Logging queries 1" => Reader.new(<<~RUBY, "db.query(\"select 1\")", "select 1, 1 rows\n"),
      require "heddle"
      db = Heddle::DB.connect(ENV.fetch("DATABASE"))
      logger = Object.new.tap { |log| def log.info(line) = puts(line.sub(/ [0-9.e-]+ s/, "")) }
    RUBY
    "databases: COPY, notifications, notices 1" => Reader.new(<<~RUBY, "", "1 one\n2 \n7\n"),
      require "heddle"
      db = Heddle::DB.connect(ENV.fetch("POSTGRESQL"))
      db.query("drop table if exists items; create table items (id int, name text)")
    RUBY
    "databases: COPY, notifications, notices 2" => Reader.new(<<~RUBY, "", /\A2\n20\d\d\n\z/),
      require "heddle"
      db = Heddle::DB.connect(ENV.fetch("POSTGRESQL"))
      db.query("drop table if exists items; create table items (id int, name text, at timestamptz)")
    RUBY
    "databases: ActiveRecord 1" =>
      Reader.new("", "p Heddle::ActiveRecordSupport.name", %("Heddle::ActiveRecordSupport"\n)),
    "databases: mysql2 and pg 1" => Reader.new("", "", %(["2", "3"]\n)),
    "databases: The gem sqlite3 1" => Reader.new("", "", %([["as good as new"]]\n)),
    "databases: ODBC 1" => Reader.new(<<~RUBY, "", "3\n"),
      require "#{ROOT}/test/support/odbc_sources"
      ODBCSources.add("shop", "SQLite", Database: ":memory:")
    RUBY
    "databases: Sequel on Heddle's own clients 1" => Reader.new("", "", "lamp\n"),
    "databases: Sequel on other gems 1" =>
      Reader.new("", "p Sequel::Database.new.is_a?(Sequel::HeddleConnections::Database)", "true\n"),
    "databases: SQLite 1" => Reader.new(<<~RUBY, "", /LAMP!.*\b(\d+) of \1 pages/m),
      require "tmpdir"
      Dir.chdir(folder = Dir.mktmpdir)
      at_exit { FileUtils.rm_rf(folder) }
    RUBY
    "what_is_it_doing: How much, and when? 1" =>
      Reader.new("", "", /\A\{\{\} ?=> ?4\}\nheddle\.tasks\.started \(counter, \{task\}\): Tasks that were started\n/),
    "what_is_it_doing: Prometheus 1" =>
      Reader.new("", "p Prometheus::Client.registry.exist?(:heddle_loop_lag_seconds)", "true\n"),
    "what_is_it_doing: OpenTelemetry 1" => Reader.new(%w[TRACES METRICS LOGS]
      .map { |kind| %(ENV["OTEL_#{kind}_EXPORTER"] = "none") }.join("\n"), <<~RUBY, "true\n"),
        OpenTelemetry.meter_provider.add_metric_reader(reader = OpenTelemetry::SDK::Metrics::Export::MetricReader.new)
        p reader.collect.any? { |data| data.name == "heddle.loop.lag" }
      RUBY
    "what_is_it_doing: A trace 1" => Reader.new("", <<~RUBY, "true\n"),
      require "json"
      p JSON.parse(File.read("trace.json")).any? { |event| event["name"] == "worker" }
    RUBY
    "streams: Streams 1" => Reader.new("", "p stream.closed?", /\AVERSION \d.*\ntrue\ntrue\n\z/m),
    "measuring: HTTP clients 1" => Reader.new(%(require "heddle/lab"\nrequire "heddle/lab/workload/http"),
      'p Heddle::Lab::Workload::HTTP::Client.fetch("my_client")', "MyClient\n"),
    "measuring: The GVL 1" => Reader.new("", "p Heddle.spin_before_release?", /\A\[:.*\]\nfalse\n\z/),
    "what_is_it_doing: What blocked it? 1" => Reader.new("", "", /C code held the GVL, task \d+ "upload 7".*Digest/m),
    "what_is_it_doing: What blocked it? 2" => Reader.new("", "p watch.stopped?", "true\n"),
    "how_it_works: Fibers are reused 1" => Reader.new("", "", ""),
    "upgrading_and_versions: Versions 1" => Reader.new("", "", /\A\d+\.\d+\.\d+\n\z/),
    "databases: Decimals 1" => Reader.new("def gem(*, **) = nil", "", ""),
    "upgrading_and_versions: Versions 2" => Reader.new("def gem(*, **) = nil", "", "")
  }.freeze

  BLOCKS.each do |name, block|
    define_method(:"test_#{name.downcase.gsub(/\W+/, "_")}") do
      reader = READERS.fetch(name) { flunk "no reader runs the block below #{name.inspect}: add it to READERS" }
      requests = with_page do |page|
        # A block that shows what to require shows all of it.
        assumed = %(require "heddle"; require "net/http") unless block.include?("require ")
        program = [EVERYBODYS, assumed, reader.before, at_hand(block), reader.after].join("\n")
        out = output_of(program, GEMS.fetch(name, []), "PAGE" => page, **servers(program))
        assert_match reader.prints, out.gsub(/\b(\w+): (?=")/, ':\1=>') # as a Hash looks before Ruby 3.4
      end
      assert_equal reader.requests || 0, requests
    end
  end

  def test_every_reader_has_its_block
    assert_empty READERS.keys - BLOCKS.keys
    assert_empty GEMS.keys - BLOCKS.keys
    assert_equal DOCUMENTS.sum { |document| File.read(File.join(ROOT, document)).scan(/^```ruby$/).size }, BLOCKS.size
  end

  private

  # What a user's Ruby prints, with these gems, and bigdecimal, which Ruby brings.
  def output_of(program, gems, environment)
    environment = {**LoopHelpers.bundle(["bigdecimal", *gems]), **environment}
    folders = ["#{ROOT}/lib", *FOLDERS.values_at(*gems).compact]
    Tempfile.create(["snippet", ".rb"]) do |file|
      file.tap { file.write(program) }.close
      Dir.mktmpdir do |empty|
        out, err, status = run_ruby(environment, *folders.map { |folder| "-I#{folder}" }, file.path, chdir: empty)
        assert_predicate status, :success?, "#{out}#{err}"
        assert_empty err
        out
      end
    end
  end

  def run_ruby(environment, *arguments, **options)
    out, err = Array.new(2) { Tempfile.new }
    pid = Process.spawn(environment, RbConfig.ruby, *arguments, out: out.path, err: err.path, in: File::NULL, **options)
    status = reap(pid, 60)
    [File.read(out.path), File.read(err.path), status]
  ensure
    [out, err].compact.each(&:close!)
  end

  def at_hand(block)
    block.gsub(/"10\.0\.0\.1[^"]*"/, 'ENV.fetch("CACHE")').gsub(%r{"mysql://[^"]*"}, 'ENV.fetch("DATABASE")')
      .gsub(%r{"postgresql://[^"]*"}, 'ENV.fetch("POSTGRESQL")')
      .gsub('"cache.example", 11211', '*ENV.fetch("CACHE").split(":")')
      .gsub(/(timeout: |deadline\()([\d.]+)/) { "#{$1}#{20 * $2.to_f}" }
  end

  # Those that the program asks for.
  def servers(program)
    {"CACHE" => :memcached, "DATABASE" => :mariadb, "POSTGRESQL" => :postgresql,
     "REDIS_URL" => :redis}.filter_map do |name, kind|
      next unless program.include?(name)

      server = Servers.public_send(kind)
      [name, (kind != :memcached) ? server.url : "#{server.host}:#{server.port}"]
    end.to_h
  end

  # @return [Integer] how often it was requested
  def with_page
    requests = Thread::Queue.new
    answer = lambda do |connection|
      requests << 1
      nil until connection.gets == "\r\n"
      connection.write("HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\npage")
    end
    with_server(answer) { |port| yield "http://127.0.0.1:#{port}/" }
    requests.size
  end
end
