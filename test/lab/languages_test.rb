# frozen_string_literal: true

require "test_helper"
require "json"
require "stringio"
require "tmpdir"
require "heddle/lab"
require "heddle/lab/workload"
require "heddle/lab/workload/foreign_program"

runs_on short: false

# The peers of other languages do what Ruby's clients do, and tell what went wrong.
class LanguagesTest < Minitest::Test
  hard_deadline 180

  Program = Heddle::Lab::Workload::ForeignProgram
  ROWS = "select n::int as id, 'name' as name, now() as at from generate_series(1, %d) as n"

  def self.server
    @server ||= Heddle::Lab::LoadServer.start.tap { |server| Minitest.after_run { server.stop } }
  end

  %w[go aiohttp undici].each do |model|
    define_method("test_#{model}_makes_all_requests_at_once") do
      server = self.class.server
      measures = request(model, "/50", 40, at_once: 40, kept: false)
      assert_equal [40, 0, nil], measures.values_at("operations", "errors", "first_error")
      assert_operator measures["wall"], :<, 40 * 0.05
      assert_operator server.stats["most_open"], :>=, 40
      assert_operator measures["cpu"], :>, 0
      assert_operator measures["peak_rss_kib"], :>, 1000
    end

    define_method("test_#{model}_keeps_its_connections") do
      assert_equal [100, 0, nil],
        request(model, "/0", 100, at_once: 4, kept: true).values_at("operations", "errors", "first_error")
    end

    define_method("test_#{model}_checks_answers") do
      ["/b/4", "/b/5", "/no/such/path"].each do |path| # another body, a longer one, another status
        measures = request(model, path, 10, at_once: 2, kept: true, warm_up: "/0")
        assert_equal [0, 10], measures.values_at("operations", "errors"), path
        assert_match(/wrong answer/, measures["first_error"])
      end
    end

    define_method("test_#{model}_tells_when_it_cannot_connect") do
      measures = program(model).run("http://127.0.0.1:#{Heddle::Lab::Servers.free_port}/0", 3, 1, "fresh",
        "#{base}/0", 1)
      assert_equal [0, 3], measures.values_at("operations", "errors")
      assert_match(/refused/i, measures["first_error"])
    end
  end

  def test_connections_that_are_not_kept_are_an_error
    program = program("go")
    program.define_singleton_method(:run) { |url, requests, at_once, _, *| super(url, requests, at_once, "fresh") }
    measures = program.request("#{base}/0", 10, at_once: 2, kept: true, warm_up: {"#{base}/0" => 2})
    assert_equal 1, measures["errors"]
    assert_match(/\A\d+ connections for 10 requests, 2 at once, kept\z/, measures["first_error"])
  end

  %w[asyncpg postgres.js].each do |model|
    %w[kept rows pool].each do |operation|
      define_method("test_#{model}_#{operation}") do
        measures = query(model, operation, 1000)
        assert_equal 200, measures["operations"]
        assert_operator measures["wall"], :>, 0
        assert_operator measures["cpu"], :>, 0
      end
    end

    define_method("test_#{model}_checks_answers") do
      assert_raises(RuntimeError) { query(model, "rows", 999) }.then { |error| assert_match(/999/, error.message) }
    end
  end

  def test_benches_take_them
    {%w[delay --requests 20 --delays 0] => %w[go go-kept],
     %w[http --small keep-alive --requests 20] => %w[go],
     %w[postgresql --operations kept,rows,pool --scale 0.01] => %w[asyncpg postgres.js]}.each do |bench, models|
      out, err = StringIO.new, StringIO.new
      status = Heddle::Lab::CLI.run(["bench", *bench, "--models", ["heddle", *models].join(","), "--rounds", "1",
        "--no-twins", "-o", "json"], out: out, err: err)
      assert_equal [0, []], [status, err.string.lines.grep_v(/models cannot run here/)], out.string
      record = JSON.parse(out.string)
      missing = record["missing"].each { |model| assert_match(/is not installed/, model["reason"]) }
      measured = record["rounds"].map { |round| round["model"] }
      assert_equal models, (measured - ["heddle"] | missing.map { |model| model["name"] }).sort
      assert_empty record["rounds"].filter_map { |round| round["error"] || round["measures"]["first_error"] }
    end
  end

  # Without programs on PATH, and without packages in the cache.
  def test_what_is_missing_is_told
    path, cache = ENV.values_at("PATH", "XDG_CACHE_HOME")
    Dir.mktmpdir do |empty|
      ENV["PATH"] = ENV["XDG_CACHE_HOME"] = empty
      {"go" => "golang-go", "undici" => "npm", "postgres.js" => "npm"}.each do |model, package|
        error = assert_raises(LoadError) { Program.of(model).versions }
        assert_match(/is not installed.*#{package}/, error.message)
      end
    ensure
      ENV["PATH"], ENV["XDG_CACHE_HOME"] = path, cache
    end
  end

  private

  def base = "http://#{self.class.server.host}:#{self.class.server.port}"

  # @return [ForeignProgram] ready to run
  def program(model)
    Program.of(model).tap(&:versions)
  rescue LoadError => error
    assert_match(/is not installed/, error.message)
    skip error.message
  end

  def request(model, path, requests, warm_up: path, **options)
    program(model).request("#{base}#{path}", requests, **options, warm_up: {"#{base}#{warm_up}" => 40})
  end

  def query(model, operation, rows)
    program(model).run(Heddle::Lab::Servers.postgresql.url, operation, 200, format(ROWS, rows))
  end
end
