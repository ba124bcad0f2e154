# frozen_string_literal: true

require "test_helper"
require "open3"
require "pty"
require "stringio"
require "tmpdir"
require "heddle/lab"

# What the `heddle` command says on terminals of any size, on none, and of wrong command lines and places.
class LabTerminalTest < Minitest::Test
  EXE = File.expand_path("../../exe/heddle", __dir__)
  HELP = [[], %w[bench], %w[bench list], %w[bench http], %w[bench delay], %w[bench doctor], %w[bench draw], %w[report],
    %w[compare], %w[serve]].freeze
  QUICK = %w[bench delay --requests 5 --delays 0 --models threads --no-twins].freeze

  def cli(*argv)
    out, err = StringIO.new, StringIO.new
    [Heddle::Lab::CLI.run(argv, out: out, err: err), out.string, err.string]
  end

  # What a terminal of some size shows of a command.
  def on_a_terminal(size, *argv)
    PTY.spawn("/bin/sh", "-c", 'read go; exec "$@"', "sh", RbConfig.ruby, EXE, *argv) do |out, input, pid|
      out.winsize = size
      input.puts("go")
      shown = +""
      begin
        Timeout.timeout(60) { loop { shown << out.readpartial(1000) } }
      rescue Errno::EIO
        return [shown.force_encoding(Encoding::UTF_8), Process.wait2(pid).last.exitstatus]
      end
    end
  end

  def test_help_fits_the_terminal
    help = Heddle::Lab::CLI::Help
    longest = 47 # the longest word, a URL, and its indentation
    HELP.each do |argv|
      text = cli(*argv, "--help")[1]
      [100, 80, 60, longest].each do |width|
        folded = help.fold(text, width)
        assert_equal text.gsub(/\s/, ""), folded.gsub(/\s/, ""), "nothing is lost"
        folded.each_line(chomp: true) { |line| assert_operator line.size, :<=, width, argv }
      end
    end
    text = "    -x, --example NAME               one,two, three\n"
    assert_equal "    -x, --example NAME\n        one,two, three", help.fold(text, 40)
    assert_equal text.chomp, help.fold(text, 72)
    shown, status = on_a_terminal([24, 80], "bench", "http", "--help")
    assert_equal 0, status
    shown.split(/\r?\n/).each { |line| assert_operator line.size, :<=, 80 }
    assert_operator shown.lines.size, :>, 40
  end

  # As in a container whose terminal got no size, and in a window of a line or two.
  def test_terminals_without_a_size_and_very_small_ones
    {[0, 0] => "1/2 round 1, ", [1, 20] => "1/2 round 1, ", [2, 2] => "threads"}.each do |size, due|
      shown, status = on_a_terminal(size, *QUICK, "--rounds", "2")
      assert_equal 0, status, shown
      assert_includes shown, due
    end
  end

  def test_no_locale_no_colour_and_a_pipe_that_is_closed
    environment = {"LANG" => nil, "LC_ALL" => "C", "NO_COLOR" => "1"}
    file = File.expand_path("../../bench/results/http-small-ruby4.0.5.json", __dir__)
    out, err, status = Open3.capture3(environment, RbConfig.ruby, EXE, "compare", file, file)
    assert_equal [0, ""], [status.exitstatus, err]
    assert_includes out.force_encoding(Encoding::UTF_8), "─"
    out, err, = Open3.capture3(environment, "sh", "-c", '"$@" | head -1', "sh", RbConfig.ruby, EXE, "bench", "list")
    assert_equal ["", 1], [err, out.lines.size]
  end

  def test_a_wrong_command_line_leads_to_the_help_of_its_command
    {
      %w[bench delay --nope] => "bench delay --help", %w[bench doctor tea] => "bench doctor --help",
      %w[report] => "report --help", %w[compare one] => "compare --help", %w[serve extra] => "serve --help",
      %w[bench tea] => "--help", %w[tea] => "--help", [] => "--help", %w[bench list extra] => "--help"
    }.each do |argv, command|
      status, _, err = cli(*argv)
      assert_equal 64, status, argv
      assert_equal "heddle: see heddle #{command}\n", err.lines.last
      assert_equal 0, cli(*command.split).first
    end
  end

  # Not after a run of minutes.
  def test_places_that_cannot_be_written_are_refused_before_the_run
    Dir.mktmpdir do |folder|
      File.write(file = File.join(folder, "file"), "")
      [["--out", file], ["--record", file], ["--html", folder], ["--html", "#{file}/page.html"]].each do |place|
        status, out, err = cli(*QUICK, *place)
        assert_equal [69, ""], [status, out]
        assert_match(/\Aheddle: cannot write the report: .*#{Regexp.escape(folder)}/, err)
      end
    end
  end

  def test_what_is_missing_is_said_before_the_run
    _, _, err = cli(*%w[bench http --models raw,rfuzz --sites local --size 1000 --rounds 2])
    assert_equal "heddle: 1 of 2 models cannot run here (rfuzz); the report says why\n", err.lines.first
  end

  # The moment that its last file is loaded, and one before the first round has ended.
  def test_ctrl_c_prints_no_backtrace
    Dir.mktmpdir do |folder|
      File.write(early = File.join(folder, "early.rb"), <<~RUBY)
        TracePoint.new(:class) { |event| Process.kill(:INT, 0) if event.self.name == "Heddle::Lab::CLI" }.enable
      RUBY
      File.write(later = File.join(folder, "later.rb"), <<~RUBY)
        TracePoint.new(:call) { |event| Process.kill(:INT, 0) if event.method_id == :measure_cell }.enable
      RUBY
      [early, later].each do |moment|
        out, status = Open3.capture2e(RbConfig.ruby, "-r", moment, EXE, *QUICK, pgroup: true, chdir: folder)
        assert_equal [130, ""], [status.exitstatus, out]
      end
    end
  end
end
