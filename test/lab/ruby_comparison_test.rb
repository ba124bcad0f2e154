# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tmpdir"
require "heddle/lab"
require "support/lab_records"

# `heddle bench NAME --rubies` measures on several Rubies in turn, and shows them side by side. A link to this Ruby is
# another Ruby as far as the command can tell.
class RubyComparisonTest < Minitest::Test
  Table = Heddle::Lab::Report::Table
  Entry = Heddle::Lab::Report::Entry

  def cli(*argv)
    out, err = StringIO.new, StringIO.new
    [Heddle::Lab::CLI.run(argv, out: out, err: err), out.string, err.string]
  end

  def with_a_link
    Dir.mktmpdir do |directory|
      link = File.join(directory, "another")
      File.symlink(RbConfig.ruby, link)
      yield link, directory
    end
  end

  def test_rounds_on_two_rubies_alternate
    with_a_link do |link, directory|
      version = RUBY_VERSION
      status, out, err = cli(*%w[bench delay --requests 5 --delays 0 --models threads,heddle --rounds 2 --no-twins],
        "--rubies", "#{RbConfig.ruby},#{link}", "--out", directory, "--html", File.join(directory, "page.html"))
      assert_equal 0, status, err
      page = File.read(File.join(directory, "page.html"))
      [1, 2].each { |number| assert_includes page, %("name":"delay-ruby#{version}-#{number}") }
      assert_match(/^ +0 ms, #{version}-1 +0 ms, #{version}-2$/, out)
      assert_match(/^heddle( +[\d.]+ \([\d.]+–[\d.]+\)){2}$/, out)
      lines = [2, 4].map { |done| "round 1 of 2 on #{RUBY_DESCRIPTION[/\Aruby \S+/]} is done, #{done} of" }
      assert_equal lines, err.scan(/round .* of(?= \d+ cells)/)
      records = [1, 2].map do |number|
        Heddle::Lab::Record.read(File.join(directory, "delay-ruby#{version}-#{number}.json"))
      end
      orders = records.map { |record| record.rounds.map { |round| [round.round, round.model] } }
      assert_equal orders.first, orders.last
      records.each { |record| assert record.clean?, record.to_json }
    end
  end

  # It is raised in the end.
  def test_an_error_on_one_ruby_keeps_the_rounds_of_the_others
    finished = []
    good = Object.new
    good.define_singleton_method(:measure) do |_, &round_ended|
      5.times { round_ended.call }
    rescue Interrupt
      "two rounds"
    end
    good.define_singleton_method(:finish) { |record| finished << record and 130 }
    bad = Object.new
    bad.define_singleton_method(:measure) do |_, &round_ended|
      round_ended.call
      raise Heddle::Lab::Error, "none"
    end
    comparison = Heddle::Lab::CLI::RubyComparison.new({"good" => good, "bad" => bad}, StringIO.new, nil)
    assert_equal "none", assert_raises(Heddle::Lab::Error) { comparison.run }.message
    assert_equal ["two rounds"], finished
  end

  def test_interrupted_runs_have_files_of_their_own
    Dir.mktmpdir do |directory|
      record = LabRecords.http("4.0.5")
      record.header["interrupted"] = true
      Dir.chdir(directory) do
        %w[3.1 4.0].each do |label|
          bench = Heddle::Lab::Bench.find("http").new
          command = Heddle::Lab::CLI::BenchCommand.new(bench, StringIO.new, err = StringIO.new)
          command.prepare([]).on(Heddle::Lab::InstalledRuby.current, label)
          assert_equal 130, command.finish(record)
          assert_match(/--resume \S*http-ruby#{label}-interrupted-#{Process.pid}\.json$/, err.string)
        end
      end
      assert_equal 2, Dir["#{directory}/*.json"].size
    end
  end

  def test_what_is_no_ruby
    {
      "9.9" => "there is no Ruby 9.9 here; name its path, as in /opt/ruby/bin/ruby",
      "/nowhere/ruby" => "/nowhere/ruby is no Ruby that runs: No such file",
      "/bin/false" => "/bin/false is no Ruby that runs"
    }.each do |name, message|
      status, _, err = cli("bench", "delay", "--rubies", name)
      assert_equal 64, status
      assert_includes err, message
    end
    assert_match(/--rubies prints table or md/, cli(*%w[bench delay -o csv --rubies], RUBY_VERSION)[2])
  end

  def test_a_version_names_the_ruby_that_runs
    [RUBY_VERSION, RUBY_VERSION[/\d+\.\d+/]].each do |name|
      found = Heddle::Lab::InstalledRuby.find(name)
      assert_equal [RbConfig.ruby, RUBY_DESCRIPTION, RUBY_VERSION], [found.path, found.description, found.version]
    end
  end

  def test_a_link_is_another_ruby_with_the_same_gems
    with_a_link do |link, _|
      found = Heddle::Lab::InstalledRuby.find(link)
      assert_equal [RUBY_DESCRIPTION, RUBY_VERSION], [found.description, found.version]
      assert_equal RbConfig::CONFIG["ruby_version"], File.basename(found.environment.fetch("GEM_HOME"))
    end
  end

  def test_tables_side_by_side
    table = ->(cells, note, title: "Rate", prose: nil) do
      Table.new(title: title, columns: ["", *cells.keys], rows: [["one", *cells.values]], notes: ["same", note],
        prose: prose)
    end
    bad = Entry.new("no answer", :error)
    merged = Table.side_by_side(
      "3.1" => [table.call({"a" => "1", "b" => "2"}, "floor 1"), table.call({"x" => "5"}, "as ever", title: "Known")],
      "4.0" => [table.call({"a" => "3", "c" => "4"}, "floor 2"), table.call({"x" => "5"}, "as ever", title: "Known"),
        table.call({"what" => bad}, "", title: "Wrong", prose: true)]
    )
    assert_equal ["Rate", "Known", "Wrong, 4.0"], merged.map(&:title)
    assert_equal ["", "a, 3.1", "a, 4.0", "b, 3.1", "b, 4.0", "c, 3.1", "c, 4.0"], merged.first.columns
    assert_equal [%w[one 1 3 2 – – 4]], merged.first.rows.map { |row| row.map(&:to_s) }
    assert_equal ["same", "3.1: floor 1", "4.0: floor 2"], merged.first.notes
    assert_equal [["one", "5"]], merged[1].rows
    assert_equal [["one", bad]], merged[2].rows
  end
end
