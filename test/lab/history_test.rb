# frozen_string_literal: true

require "test_helper"
require "json"
require "open3"
require "stringio"
require "tmpdir"
require "support/lab_histories"

# `heddle bench NAME --record DIR` and `heddle report --history DIR`: figures over revisions, and the steps in them.
class LabHistoryTest < Minitest::Test
  SLOWER = {"heddle" => 1.3}.freeze

  def setup
    @folder = Dir.mktmpdir
  end

  def teardown = FileUtils.remove_entry(@folder)

  def cli(*argv)
    out, err = StringIO.new, StringIO.new
    [Heddle::Lab::CLI.run(argv, out: out, err: err), out.string, err.string]
  end

  def report(*options) = cli("report", "--history", @folder, *options)

  # The rows of drawn tables, by their names.
  def rows(text) = text.lines.filter_map { |line| line.chomp.split(/ {2,}/) if line.match?(/[▁-█]/) }

  def test_a_run_is_kept
    command = %w[bench delay --requests 20 --delays 0,20 --models blocking,threads:5 --rounds 2 --machine mine --record]
    assert_equal 0, cli(*command, @folder).first
    file, = Dir.children(@folder)
    assert_match(/\Adelay-ruby#{RUBY_VERSION}-\d{8}T\d{6}Z-\h{8}\.json\z/o, file)
    whole = JSON.parse(File.read(File.join(@folder, file)))
    assert_equal Open3.capture2("git", "rev-parse", "HEAD", chdir: __dir__).first.strip, whole["revision"]["git"]
    assert_equal "mine", whole["machine"]["name"]
    assert_equal %w[blocking threads:5], whole["models"]
    assert_equal ["Requests a second", "CPU µs per request", "Peak RSS, MiB", "Objects allocated"].sort,
      whole["metrics"].map { |metric| metric["title"] }.sort
    assert_equal [[2, 2]] * 2, whole["values"].first.map { |of_case| of_case.map(&:size) }
    assert_operator File.size(File.join(@folder, file)), :<, 4000
    assert_schema(JSON.parse(File.read(File.expand_path("../../lab/schema/history.json", __dir__))), whole)
    status, out, = report
    assert_equal 0, status
    assert_includes out, "too few runs to tell a step from noise in 16 of 16 rows: that takes 6"
  end

  # The schema's own entries, and what each must have.
  def assert_schema(schema, whole)
    assert_equal schema["required"].sort, (schema["required"] & whole.keys).sort
    assert_empty whole.keys - schema["properties"].keys
    whole.each do |name, value|
      kind = schema["properties"][name]["type"] or next
      assert_equal kind, {Hash => "object", Array => "array", String => "string"}.fetch(value.class), name
    end
  end

  def test_an_interrupted_run_is_not_kept
    record = LabHistories.record("4.0.5", 0)
    record.header["interrupted"] = true
    command = Heddle::Lab::CLI::BenchCommand.new(Heddle::Lab::Bench::HTTP.new, StringIO.new, StringIO.new)
    Dir.chdir(@folder) do
      assert_equal 130, command.prepare(["--record", "history"]).finish(record)
      refute_path_exists "history"
    end
  end

  def test_a_step_is_marked_where_it_is
    LabHistories.write(@folder, factors: SLOWER, versions: {"curb" => "curb 2.0"})
    status, out, err = report
    assert_equal [0, ""], [status, err]
    assert_match(/\Ahttp: Bodies of 10 MB by HTTP clients; ruby 4\.0\.5, quiet, a CPU$/, out)
    drawn = rows(out)
    assert_equal LabHistories::CLIENTS * 2, drawn.map(&:first)
    assert_equal 2, drawn.count { |_, line| line.match?(/\A[▁-▄]{6}│[▅-█]{6}\z/) }
    assert_includes out, "Between 0000abc5 and 0000abc6\n"
    assert_match(/^  heddle, local: CPU seconds per GB .*: × 1\.\d\d, worse \(noise floor ±\d\.\d %\)$/, out)
    assert_match(/^other figures: CPU used, per cent of the time; .*; --metrics NAMES draws them$/, out)
    refute_match(/^  curb, local: CPU seconds/, out)
  end

  def test_nothing_is_said_where_nothing_happened
    LabHistories.write(@folder)
    _, out, = report
    assert_includes out, "no step is larger than the noise\n"
    refute_includes out, "│"
  end

  # In ratios to the reference a slow machine shows as nothing.
  def test_a_slow_machine
    LabHistories.write(@folder, factors: LabHistories::CLIENTS.to_h { |client| [client, 1.4] })
    assert_includes report[1], "every model changed at once: perhaps the machine did; --ratios tells"
    _, out, = report("--ratios", "--metrics", "CPU seconds", "--models", "heddle,curb")
    assert_equal %w[heddle curb] * 2, rows(out).map(&:first)
    refute_match(/CPU seconds per GB .*worse/, out)
  end

  def test_other_machines_rubies_and_options_have_lines_of_their_own
    {"a" => {machine: "other", factors: SLOWER, from: 0}, "b" => {ruby: "3.4.11"}, "c" => {}}.each do |name, how|
      LabHistories.write(File.join(@folder, name), runs: 4, **how)
    end
    Dir.glob("*/*", base: @folder).each do |path|
      FileUtils.mv(File.join(@folder, path), File.join(@folder, path.tr("/", "-")))
    end
    _, out, = report
    assert_equal ["ruby 3.4.11, quiet", "ruby 4.0.5, other", "ruby 4.0.5, quiet"],
      out.scan(/clients; (ruby \S+ \w+),/).flatten.sort
    assert_equal ["runs: 4"], out.scan(/runs: \d+/).uniq
    refute_includes out, "│"
  end

  def test_fail_on_step
    LabHistories.write(@folder, factors: SLOWER)
    status, _, err = report("--fail-on-step")
    assert_equal 1, status
    assert_match(/^heddle: a step at \h{8}: heddle, local: CPU seconds per GB × 1\.\d\d$/, err)
    assert_equal 0, report("--fail-on-step", "5").first, "the step is older"
    assert_equal 1, report("--fail-on-step", "6").first
    assert_equal [0, ""], report("--fail-on-step", "--models", "curb").values_at(0, 2)
    FileUtils.rm_f(Dir[File.join(@folder, "*")])
    LabHistories.write(@folder, factors: {"heddle" => 0.7})
    assert_equal 0, report("--fail-on-step").first, "it is for the better"
  end

  # As after a rebase: the step is between the revisions, wherever the runs stand in time.
  def test_runs_stand_in_the_order_of_their_commits
    LabHistories.write(@folder, factors: SLOWER)
    Dir[File.join(@folder, "*.json")].each_with_index do |file, at|
      text = File.read(file)
      File.write(file, text.sub(/"started_at": ".*?"/, %("started_at": "2026-12-#{format("%02d", 28 - at)}T00:00:00Z")))
    end
    assert_match(/^ *heddle +[▁-▄]{6}│[▅-█]{6} /, report[1])
  end

  def git(*arguments)
    out, status = Open3.capture2("git", *arguments, chdir: __dir__)
    status.success? ? out : skip("this checkout has too few commits")
  end

  def test_commits_of_the_checkout
    newest, oldest = %w[HEAD HEAD~2].map { |name| git("log", "-1", "--format=%H %cI %s", name).chomp.split(" ", 3) }
    between = git("rev-list", "--count", "HEAD~2..HEAD").to_i # more than two where something was merged
    revisions = [oldest] * 6 + [newest] * 6
    LabHistories.write(@folder, factors: SLOWER,
      revisions: revisions.map { |git, time| {"git" => git, "dirty" => false, "committed_at" => time} })
    _, out, = report("--commits", "https://host.example/compare/{before}...{after}")
    assert_includes out, "Between #{oldest.first[0, 8]} and #{newest.first[0, 8]}, commits: #{between}\n"
    assert_includes out, "    #{newest.first[0, 8]} #{newest.last}\n"
    assert_includes out, "    https://host.example/compare/#{oldest.first}...#{newest.first}\n"
  end

  def test_a_step_between_two_runs_of_one_revision
    revisions = Array.new(12) { LabHistories.revision(0) }
    LabHistories.write(@folder, factors: SLOWER, revisions: revisions)
    assert_match(/^Between two runs of 0000abc0: not Heddle's code, unless it was changed without a commit$/, report[1])
  end

  def test_every_line_fits_the_terminal
    LabHistories.write(@folder, runs: 70, from: 40, factors: SLOWER)
    group, = Heddle::Lab::History.read(@folder).groups
    {80 => 50, 40 => 10}.each do |width, runs|
      text = Heddle::Lab::Report::HistoryText.new(group, group.lines, Heddle::Lab::History::Origin.new, width: width)
      tables = Heddle::Lab::Report::Text.new(width: width).render("", text.tables(["CPU seconds per GB"]), [])
      tables.lines.each { |line| assert_operator line.chomp.size, :<=, width }
      assert_match(/^heddle +[▁-█│]{#{[runs - 6, 8].max},}/, tables)
    end
  end

  def test_sparklines
    draw = Heddle::Lab::Report::Sparkline.method(:draw)
    assert_equal "▁▂▃▄▅▆▇█", draw.call((8..15).to_a, [], 60)
    assert_equal "▁▁ ▁│█", draw.call([10.0, 10.1, nil, 10.0, 20.0], [4], 60)
    assert_equal "▁│█", draw.call([10.0, 10.1, nil, 10.0, 20.0], [4], 3)
    assert_equal "▁▁", draw.call([0, 0], [], 60)
  end

  def test_broken_files_are_named
    LabHistories.write(@folder, runs: 3)
    good = File.read(Dir[File.join(@folder, "*")].min)
    path = File.join(@folder, "broken.json")
    {
      good[0, 500] => /this is not JSON/, "" => /this is not JSON/, "[]" => /this is not a file that/,
      LabRecords.http("4.0.5").to_json => /this is not a file that heddle bench NAME --record DIR wrote/,
      good.sub(/"versions": .*\n/, "") => /broken: it lacks versions/,
      good.sub(/"started_at": ".*?"/, '"started_at": "soon"') => /broken: what should be a time is none/,
      good.sub(/"committed_at":".*?"/, '"committed_at":7') => /broken: what should be a time is none/,
      good.sub(/"git":".*?"/, '"git":null') => /broken: it names no revision/,
      good.sub('"models": ["stock",', '"models": [7,') => /broken: a case, a model or a metric has no name/,
      good.sub('"models": ["stock",', '"models": [') => /broken: its values do not fit/,
      good.sub(/("values": \[\n)\[\[\[.*?\]/, "\\1[[7") => /broken: its values do not fit/
    }.each do |text, message|
      refute_equal good, text, message
      File.write(path, text)
      assert_equal [69, ""], report.first(2)
      assert_match(/\Aheddle: #{Regexp.escape(path)}: .*#{message.source}/, report.last)
    end
  end

  def test_wrong_command_lines
    Dir.mktmpdir { |empty| assert_match(/there is no run in/, cli("report", "--history", empty).last) }
    assert_equal 69, cli("report", "--history", File.join(@folder, "absent")).first
    LabHistories.write(@folder, runs: 1)
    {
      %w[--models tea] => /there is no model "tea"; there are stock, heddle, curb/,
      %w[--models hed] => /there is no model "hed"; there are stock, heddle, curb/,
      %w[--metrics tea] => /there is no figure "tea"; there are CPU seconds per GB, /,
      %w[--commits javascript:alert(1)] => /--commits takes a URL with \{before\} and \{after\}/,
      %w[file.json] => /--history takes a folder, and no further files/,
      %w[--fail-on-step 0] => /--fail-on-step must be at least 1/
    }.each do |options, message|
      status, _, err = report(*options)
      assert_equal 64, status, options
      assert_match message, err
    end
    assert_match(/--ratios belongs to --history/, cli("report", "--ratios", "file.json").last)
  end
end
