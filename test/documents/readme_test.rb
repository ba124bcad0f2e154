# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/servers"
require "heddle/lab"

# The README's Ruby runs as it stands there, each block in a program of its own: only its addresses become those of servers
# that are there, and its limits of time longer. Its commands are those that there are.
class ReadmeTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120 # a cold machine makes a database first

  README = File.read(File.join(ROOT, "README.md"))

  # By the heading above them.
  BLOCKS = README.split(/^\#{1,3} /).drop(1).flat_map do |part|
    part.scan(/^```ruby\n(.*?)^```$/m).flatten.map.with_index(1) { |block, number| ["#{part.lines.first.strip} #{number}", block] }
  end.to_h.freeze

  # An ellipsis is, to Ruby, the name of a method.
  EVERYBODYS = <<~RUBY
    require "net/http"
    def …(*) = nil
  RUBY

  # What a reader has before the block, what shows that it has done something, what that prints, and how often the page was
  # asked for.
  Reader = Struct.new(:before, :after, :prints, :requests)

  READERS = {
    "Heddle 1" => Reader.new(<<~RUBY, "", "", 7),
      url = ENV.fetch("PAGE"); urls = [url] * 3
    RUBY
    "Deadlines 1" => Reader.new(<<~RUBY, "p cache.get(key)", "42\n"),
      cache = Heddle::Memcached.new(ENV.fetch("CACHE")); db = Heddle::DB.connect(ENV.fetch("DATABASE")); key, sql = "readme", "select 42"
      cache.delete(key)
    RUBY
    "Several processes 1" => Reader.new(<<~RUBY, "p bodies, $stored", %(["page", "page"]\n[1, 2, 3]\n), 2),
      urls = [ENV.fetch("PAGE")] * 2; jobs = Array.new(3) { |number| Rational(number) }; lines = %w[1 2 3]
      class Rational; def perform = self; end
      def parse(line) = Integer(line)
      def store(row) = ($stored ||= []) << row
    RUBY
    "Net::HTTP with less work 1" => Reader.new(<<~RUBY, "p Heddle::NetHTTP.enabled?", "false\n"),
      host = "127.0.0.1"
    RUBY
    "memcached 1" => Reader.new(<<~RUBY, %(p cache.get("key"), cache.get("page")), %({:any=>"object"}\n"rendered"\n)),
      def render = "rendered"
      Heddle::Memcached.new(ENV.fetch("CACHE")).flush_all
    RUBY
    "memcached 2" => Reader.new(<<~RUBY, <<~AFTER, "1\n2\n"),
      config = Struct.new(:cache_store).new; servers = ENV.fetch("CACHE")
    RUBY
      CACHE.set("one", 1); p CACHE.get("one")
      require "active_support"; require "active_support/cache/heddle_store"
      store = ActiveSupport::Cache.lookup_store(*config.cache_store); store.write("two", 2); p store.read("two")
    AFTER
    "MySQL and MariaDB 1" => Reader.new(<<~RUBY, %(p db.query_row("select stock, (select count(*) from log) from items where id = 7")), %(7 lamp\n[2, 1]\n)),
      ids = [7]
      Heddle::DB.connect(ENV.fetch("DATABASE")).then do |db|
        %w[items log history].each { |table| db.exec("drop table if exists \#{table}") }
        db.exec("create table items (id int, name varchar(9), price int, stock int)")
        db.exec("create table log (at datetime)")
        db.exec("create table history (id int)")
        db.exec("insert into items values (7, 'lamp', 9, 3)")
      end
    RUBY
    "A stream with a deadline 1" => Reader.new("", "puts version, stream.healthy?", /\AVERSION \d.*\ntrue\n\z/m)
  }.freeze

  BLOCKS.each do |name, block|
    define_method(:"test_#{name.downcase.gsub(/\W+/, "_")}") do
      reader = READERS.fetch(name) { flunk "nobody reads the block below #{name.inspect}: READERS says what it takes" }
      requests = with_page do |page|
        program = [EVERYBODYS, reader.before, at_hand(block), reader.after].join("\n")
        out = assert_child(program, env: {"PAGE" => page, **servers(program)}, gems: program.match?(/DB|ActiveSupport/))
        assert_match reader.prints, out.gsub(/\b(\w+): (?=")/, ':\1=>') # as a Hash looks before Ruby 3.4
      end
      assert_equal reader.requests || 0, requests
    end
  end

  def test_all_readers_have_their_block
    assert_empty READERS.keys - BLOCKS.keys
  end

  # With options that there are.
  def test_commands
    commands = README.scan(%r{^bin/(heddle .*?)(?:  +#.*)?$}).flatten
    assert_operator commands.size, :>, 10
    commands.map { |command| command.split }.group_by { |_, command, name| (command == "bench") ? [command, name] : [command] }.each do |words, uses|
      help = StringIO.new
      assert_equal 0, Heddle::Lab::CLI.run([*words, "--help"], out: help)
      uses.flatten.grep(/\A--/).each { |option| assert_match(/#{option}\b/, help.string) }
    end
  end

  def test_links
    Dir["#{ROOT}/{*.md,doc/**/*.md}"].each do |document|
      File.read(document).scan(/\]\((?!https?:)([^)#]*)(#[^)]*)?\)/) do |path, anchor|
        file = path.empty? ? document : File.expand_path(path, File.dirname(document))
        assert_path_exists file, "#{document} links to it"
        assert_includes anchors(file), anchor, "#{document} links to it" if anchor
      end
    end
  end

  private

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
