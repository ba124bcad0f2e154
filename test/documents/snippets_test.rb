# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/servers"
require "heddle/lab"

# The Ruby of README.md and the guides runs as it stands there, each block in a program of its own: only its addresses become those
# of servers that are there, and its limits of time longer.
class SnippetsTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120 # a cold machine makes a database first

  DOCUMENTS = ["README.md", *Dir.glob("guides/*.md", base: ROOT)].sort.freeze

  # By the document and the heading above them.
  BLOCKS = DOCUMENTS.flat_map { |document|
    File.read(File.join(ROOT, document)).split(/^\#{1,3} (?=[^\n]*\n\n)/).drop(1).flat_map do |part|
      blocks = part.scan(/^```ruby\n(.*?)^```$/m).flatten
      blocks.map.with_index(1) { |block, number| ["#{File.basename(document, ".md")}: #{part.lines.first.strip} #{number}", block] }
    end
  }.to_h.freeze

  # An ellipsis is, to Ruby, the name of a method.
  EVERYBODYS = <<~RUBY
    require "net/http"
    def …(*) = nil
  RUBY

  # What a reader has before the block, what shows that it has done something, what that prints, and how often the page was
  # asked for.
  Reader = Struct.new(:before, :after, :prints, :requests)

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
    config = Struct.new(:cache_store, :active_support).new(nil, Struct.new(:isolation_level).new)
    url = ENV.fetch("PAGE", nil)
  RUBY

  READERS = {
    "README: I fetch many URLs 1" => Reader.new(THREE_PAGES, "", "", 9),
    "README: My requests hang 1" => Reader.new(ONE_PAGE, "", "", 1),
    "README: My Rails app waits for other services 1" => Reader.new(RAILS, <<~AFTER, ":fiber\n2\n", 2),
      require "active_support"; require "active_support/cache/heddle_store"; p config.active_support.isolation_level
      store = ActiveSupport::Cache.lookup_store(*config.cache_store); store.write("two", 2); p store.read("two")
    AFTER
    "getting_started: Install 1" => Reader.new("def gem(*, **) = nil", "", ""),
    "getting_started: What the build leaves out 1" =>
      Reader.new("", "", /\A(?:uring, )?(?:epoll, )?poll\n(?:uring|epoll|poll)\n\z/),
    "getting_started: Run tasks 1" => Reader.new(THREE_PAGES, "", "12\n", 3),
    "getting_started: Limit how many run at once 1" =>
      Reader.new(%(#{THREE_PAGES}; require "heddle"), "p pages", %(["page", "page", "page"]\n), 3),
    "getting_started: Use it as Ruby's scheduler 1" => Reader.new(ONE_PAGE, "", "page\n", 1),
    "getting_started: Call code that blocks 1" =>
      Reader.new(%(require "heddle"; require "tempfile"; path = Tempfile.create.path), "", ""),
    "getting_started: See what tasks wait for 1" => Reader.new(%(require "heddle"), "", /2 tasks on .*sleeper.* waits for /m),
    "getting_started: In a Rails app 1" =>
      Reader.new(RAILS, "p config.active_support.isolation_level, Heddle::NetHTTP.enabled?", ":fiber\ntrue\n"),
    "deadlines_and_cancellation: Deadlines 1" => Reader.new(ONE_PAGE, "", "", 1),
    "deadlines_and_cancellation: Clean-up 1" => Reader.new(<<~RUBY, "p cache.get(key)", "42\n"),
      require "heddle"
      cache = Heddle::Memcached.new(ENV.fetch("CACHE")); db = Heddle::DB.connect(ENV.fetch("DATABASE")); key, sql = "readme", "select 42"
      cache.delete(key)
    RUBY
    "deadlines_and_cancellation: Cancellation 1" => Reader.new(%(require "heddle"), "", "cancelled\n"),
    "deadlines_and_cancellation: Timeout.timeout 1" => Reader.new(%(require "heddle"), "", "execution expired\n"),
    "names_and_connects: Names and connects 1" => Reader.new(<<~RUBY, "p server.accept.class", "TCPSocket\n"),
      require "socket"
      server = TCPServer.new("127.0.0.1", 0); host, port = "localhost", server.local_address.ip_port
    RUBY
    "names_and_connects: Settings 1" =>
      Reader.new(%(require "heddle"), "p Heddle.resolver_cache, Heddle.fast_fallback", "nil\ntrue\n"),
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
    "memcached: memcached 1" => Reader.new(<<~RUBY, <<~AFTER, %({:any=>"object"}\n"rendered"\n)),
      require "heddle"
      def render = "rendered"
      Heddle::Memcached.new(ENV.fetch("CACHE")).flush_all
    RUBY
      p cache.get("key"), cache.get("page")
    AFTER
    "memcached: Instead of dalli 1" => Reader.new(%(require "heddle"), "", "1\n"),
    "memcached: Rails 1" => Reader.new(RAILS, <<~AFTER, "2\n"),
      store = ActiveSupport::Cache.lookup_store(*config.cache_store); store.write("two", 2); p store.read("two")
    AFTER
    "databases: MySQL and MariaDB 1" => Reader.new(<<~RUBY, <<~AFTER, "7 lamp\n[2, 1]\n"),
      require "heddle"; ids = [7]
      #{TABLES}
    RUBY
      p db.query_row("select stock, (select count(*) from log) from items where id = 7")
    AFTER
    "databases: MySQL and MariaDB 2" => Reader.new(%(require "heddle"\n#{TABLES}), "", "2\n"),
    "databases: ActiveRecord 1" =>
      Reader.new("", "p Heddle::ActiveRecordSupport.name", %("Heddle::ActiveRecordSupport"\n)),
    "databases: Sequel 1" => Reader.new("", "p Sequel::Database.new.is_a?(Sequel::HeddleConnections::Database)", "true\n"),
    "streams: Streams 1" => Reader.new("", "p stream.closed?", /\AVERSION \d.*\ntrue\ntrue\n\z/m),
    "measuring: The GVL 1" => Reader.new("", "p Heddle.look_first?", /\A\[:.*\]\nfalse\n\z/),
    "how_it_works: Fibers are used again 1" => Reader.new("", "", ""),
    "upgrading_and_versions: Versions 1" => Reader.new("", "", /\A\d+\.\d+\.\d+\n\z/),
    "upgrading_and_versions: Versions 2" => Reader.new("def gem(*, **) = nil", "", "")
  }.freeze

  BLOCKS.each do |name, block|
    define_method(:"test_#{name.downcase.gsub(/\W+/, "_")}") do
      reader = READERS.fetch(name) { flunk "nobody reads the block below #{name.inspect}: READERS says what it takes" }
      requests = with_page do |page|
        program = [EVERYBODYS, reader.before, at_hand(block), reader.after].join("\n")
        out = assert_child(program, env: {"PAGE" => page, **servers(program)}, gems: program.match?(/DB|ActiveSupport|active_support|sequel/))
        assert_match reader.prints, out.gsub(/\b(\w+): (?=")/, ':\1=>') # as a Hash looks before Ruby 3.4
      end
      assert_equal reader.requests || 0, requests
    end
  end

  def test_all_readers_have_their_block
    assert_empty READERS.keys - BLOCKS.keys
    assert_equal DOCUMENTS.sum { |document| File.read(File.join(ROOT, document)).scan(/^```ruby$/).size }, BLOCKS.size
  end

  # With options that there are.
  def test_commands
    commands = DOCUMENTS.flat_map { |document| File.read(File.join(ROOT, document)).scan(%r{^bin/(heddle .*?)(?:  +#.*)?$}).flatten }
    assert_operator commands.size, :>, 10
    commands.map { |command| command.split }.group_by { |_, command, name| (command == "bench") ? [command, name] : [command] }.each do |words, uses|
      help = StringIO.new
      assert_equal 0, Heddle::Lab::CLI.run([*words, "--help"], out: help)
      uses.flatten.grep(/\A--/).each { |option| assert_match(/#{option}\b/, help.string) }
    end
  end

  # A table below the names of files of results has their figures, rounded.
  def test_tables_have_the_figures_of_the_benches
    tables = DOCUMENTS.flat_map { |document| File.read(File.join(ROOT, document)).scan(/^<!-- (bench.+) -->\n\n((?:\|.*\n)+)/) }
    assert_operator tables.size, :>=, 4
    tables.each do |results, table|
      measured = results.split.flat_map { |path| File.read(File.join(ROOT, path)).scan(/(?<![\d.])\d+(?:\.\d+)?(?= [(\[])/).map(&:to_f) }
      shown = table.lines.drop(2).flat_map { |row| row.split("|").drop(2).join("|").scan(/\d+(?:\.\d+)?/) }
      unknown = shown.uniq.reject do |figure|
        digits = figure[/\.(\d+)/, 1].to_s.size
        measured.any? { |value| value.round(digits).to_s == (digits.zero? ? figure : figure.to_f.to_s) }
      end
      assert_empty unknown, results
    end
  end

  # The classes of the tables of errors, and what they inherit from. What Heddle offers is in a table.
  def test_errors
    require "heddle"
    rows = Dir["#{ROOT}/guides/*.md"].flat_map do |document|
      File.read(document).scan(/^\| (?:error|`Heddle::(\w+)::…`) \|.*\n\|.*\n((?:\|.*\n)+)/).flat_map do |room, table|
        table.lines.flat_map { |row| row[/\A\| (.*?) \|/, 1].scan(/`([\w:]+)`(?: < ([\w:]+))?/).map { |name, parent| [room, name, parent] } }
      end
    end
    rows.reject! { |_, name, _| name.match?(/\A(?:Errno|IO|Net|OpenSSL)::/) } # Ruby's, of which not every version has all
    assert_operator rows.size, :>, 40
    named = rows.map { |room, name, parent| error_class(room, name).tap { |found| assert_equal parent, found.superclass.name.delete_prefix("Heddle::") if parent } }
    rooms = [Heddle, Heddle::DB, Heddle::Memcached]
    offered = rooms.flat_map { |room| room.constants.map { |name| room.const_get(name) } }.grep(Class).select { |found| found <= Heddle::Error }
    assert_empty offered - named
  end

  def test_options
    require "heddle"
    tables = %w[memcached databases].to_h do |guide|
      [guide, File.read("#{ROOT}/guides/#{guide}.md").scan(/^\| option \|.*\n\|.*\n((?:\|.*\n)+)/).flatten.first.scan(/^\| (.*?) \|/).join.scan(/`(\w+)`/).flatten]
    end
    memcached = Heddle::Memcached.instance_method(:initialize).parameters.filter_map { |kind, name| name.to_s if kind == :key }
    assert_empty tables["memcached"] - memcached
    database = assert_raises(ArgumentError) { Heddle::DB.connect("mysql://localhost", none: 1) }.message[/there are (.*)/, 1].split(", ")
    assert_equal database.sort, tables["databases"].sort
  end

  def test_links
    Dir["#{ROOT}/{*.md,doc/**/*.md,guides/*.md,lab/*.md}"].each do |document|
      File.read(document).scan(/\]\((?!https?:)([^)#]*)(#[^)]*)?\)/) do |path, anchor|
        file = path.empty? ? document : File.expand_path(path, File.dirname(document))
        assert_path_exists file, "#{document} links to it"
        assert_includes anchors(file), anchor, "#{document} links to it" if anchor
      end
    end
  end

  private

  def error_class(room, name)
    [*(Heddle.const_get(room) if room), Heddle, Object].find { |owner| owner.const_defined?(name, owner == Object) }.const_get(name)
  end

  def at_hand(block)
    block.gsub(/"10\.0\.0\.1[^"]*"/, 'ENV.fetch("CACHE")').gsub(%r{"mysql://[^"]*"}, 'ENV.fetch("DATABASE")')
      .gsub('"cache.example", 11211', '*ENV.fetch("CACHE").split(":")')
      .gsub(/(timeout: |deadline\()([\d.]+)/) { "#{$1}#{20 * $2.to_f}" }
  end

  # Those that the program asks for.
  def servers(program)
    {"CACHE" => :memcached, "DATABASE" => :mariadb}.filter_map do |name, kind|
      next unless program.include?(name)

      server = Servers.public_send(kind)
      [name, (kind == :mariadb) ? server.url : "#{server.host}:#{server.port}"]
    end.to_h
  rescue Servers::Unavailable => error
    skip error.message
  end

  # @return [Integer] how often it was asked for
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

  # As the forges make them of headings.
  def anchors(file) = File.readlines(file).grep(/\A#/).map { |line| "##{line[/\A#+ (.*)/, 1].downcase.gsub(/[^\w\- ]/, "").tr(" ", "-")}" }
end
