# frozen_string_literal: true

# Runs test files on the Ruby that runs this, each in its own process with a hard deadline:
#
#   ruby test/support/driver.rb [--alone] test/loop test/resolver/resolver_test.rb
#
# A file fails when one of its tests fails, when its process crashes or is late, and when it ran no test. The record
# keeps how each file ended (see record.rb). The processes are forked from this one, so that gems are loaded only
# once, and the folder of gems for processes without Bundler is made once.
#
# Most tests mostly wait, so several files run side by side; drivers that share the folder HEDDLE_TEST_SLOTS share its
# slots. A file that fails beside others runs again alone when the others are done: then no other file disturbs the
# times that it measures. Where HEDDLE_TEST_AGAIN names a file, the driver writes the names of those files there
# instead, for the program that started the drivers: only when all drivers are done does a file run alone. The first
# failure is shown, and stays in the record; a file that crashed does not run again. After HEDDLE_TEST_UNTIL the driver
# starts no file but those that run again, and the record names those that it has left.

require "minitest"
require "tempfile"
require "tmpdir"
require_relative "../../lab/lib/heddle/lab/bundled_gems"
require_relative "../../lib/heddle/core/clock"
require_relative "emulator"
require_relative "locale"
require_relative "record"
require_relative "slots"
require_relative "slowness"
require_relative "steps"

class TestDriver
  include Heddle::Clock

  FILE_SECONDS = Slowness.stretch(300).ceil
  PAUSE = 0.05 # between two looks at slots and processes; shorter ones take some hundredths of a processor

  # A test file in its process, with its output and its record. Each file has its own record: lines of files that run
  # side by side would mix.
  class FileRun
    attr_reader :file, :alone, :pid, :started

    # @param slot [File, nil] closed with the run; nil where the file runs alone
    def initialize(file, slot, now)
      @file = file
      @slot = slot
      @alone = slot.nil?
      @started = now
      @log = Tempfile.new("heddle-test")
      @record = Tempfile.new("heddle-record")
      @pid = fork do
        slot&.close # the tests' leftover processes must not keep the lock of a driver that dies
        yield @log, @record
      end
    end

    def output
      File.read(@log.path).scrub
    end

    def rows
      lines.map { |line| JSON.parse(line) }
    end

    def lines
      File.readlines(@record.path)
    end

    def close
      [@log, @record].each(&:close!)
      @slot&.flock(File::LOCK_UN) # files that still run have inherited the descriptor
      @slot&.close
    end
  end

  def initialize(paths)
    Dir.chdir(TestRecord::ROOT)
    @files = paths.flat_map { |path| File.directory?(path) ? Dir["#{path}/**/*_test.rb"] : [path] }.uniq.sort
    @again = []
    @failed = []
    @slots_folder = ENV["HEDDLE_TEST_SLOTS"]
    @again_file = ENV["HEDDLE_TEST_AGAIN"]
    @until = ENV["HEDDLE_TEST_UNTIL"]&.to_f # in seconds of this machine's monotonic clock
  end

  def run
    abort "driver: no test files" if @files.empty?
    @failed.concat(Emulator.tell($stdout))
    Heddle::Lab::BundledGems.folder if @slots_folder
    return run_alone(@files) if @files.one? && !@slots_folder

    run_side_by_side
    if @again_file
      File.write(@again_file, @again.join("\n"))
    else
      run_alone(@again)
    end
    @failed.empty?
  end

  # Runs them one after another; each result is final.
  def run_alone(files = @files)
    files.each { |file| run_files([file]) { :alone } }
    @failed.empty?
  end

  private

  def run_side_by_side
    return with_slots(@slots_folder) if @slots_folder

    Dir.mktmpdir("heddle-slots") { |folder| with_slots(folder) }
  end

  def with_slots(folder)
    slots = TestSlots.new(folder)
    run_files(@files, till: @until) { slots.take }
  end

  # The block returns a slot, :alone, or nil while no slot is free.
  def run_files(files, till: nil)
    waiting = files.dup
    running = []
    said = now
    until waiting.empty? && running.empty?
      leave(waiting.slice!(0..)) if till && now > till
      while waiting.any? && (slot = yield)
        running << start(waiting.shift, (slot unless slot == :alone))
      end
      said = now if running.reject! { |file_run| ended?(file_run) }
      if running.any? && now - said > TestSteps::QUIET
        said = now
        $stdout.syswrite("#{place}at work: #{running.map { |file_run| at_work(file_run) }.join(", ")}\n")
      end
      sleep PAUSE
    end
  ensure
    running&.each { |file_run| signal(:KILL, file_run.pid) }
  end

  # The time that was given for all drivers has ended.
  def leave(files)
    files.each { |file| TestRecord.append("left", {file: file}) }
  end

  def at_work(file_run) = "#{file_run.file} (#{(now - file_run.started).round} s)"

  def start(file, slot)
    FileRun.new(file, slot, now) { |log, record| load_tests(file, log, record) }
  end

  def load_tests(file, log, record)
    Process.setpgid(0, 0)
    ENV["HEDDLE_TEST_RECORD"] = record.path
    $stdin.reopen(File::NULL)
    $stdout.reopen(log.path, "a")
    $stderr.reopen($stdout)
    $stdout.sync = true
    [log, record].each(&:close)
    $PROGRAM_NAME = file
    ARGV.clear
    $LOAD_PATH.unshift(File.join(TestRecord::ROOT, "lib"), File.join(TestRecord::ROOT, "test"))
    load File.expand_path(file)
  end

  def ended?(file_run)
    before = cpu_of_children
    status = Process.wait2(file_run.pid, Process::WNOHANG)&.last
    late = !status && now > file_run.started + FILE_SECONDS
    return false unless status || late

    status ||= stop(file_run.pid)
    cpu = cpu_of_children - before # of this file alone: nothing else was waited for in between
    signal(:KILL, file_run.pid) # kills what is left of its process group
    judge(file_run, status, late, cpu)
    file_run.close
    true
  end

  def stop(pid)
    signal(:TERM, pid)
    sleep 2
    signal(:KILL, pid)
    Process.wait2(pid).last
  end

  def signal(name, pid)
    Process.kill(name, -pid)
  rescue Errno::ESRCH, Errno::EPERM
    nil
  end

  # CPU time of the processes that were waited for, in seconds.
  def cpu_of_children
    times = Process.times
    times.cutime + times.cstime
  end

  def judge(file_run, status, late, cpu)
    rows = file_run.rows
    runs = rows.sum { |row| row.fetch("runs", 0) }
    outcome, message = outcome_of(file_run, status, late, runs)
    seconds = now - file_run.started
    show(file_run, outcome, message, rows, runs, seconds, cpu)
    if !file_run.alone && %w[failed late].include?(outcome)
      TestRecord.append("again", {file: file_run.file, outcome: outcome})
      return @again << file_run.file
    end
    TestRecord.append_lines(file_run.lines)
    TestRecord.append("file", {file: file_run.file, outcome: outcome, message: message, seconds: seconds.round(2),
                               cpu: cpu.round(2)})
    @failed << file_run.file unless outcome == "passed"
  end

  def outcome_of(file_run, status, late, runs)
    if late
      ["late", "ended by its limit of #{FILE_SECONDS} s; #{TestSteps::MORE}"]
    elsif status.exitstatus == 70 || file_run.output.include?("\nwatchdog: ")
      ["late", "a test of it was not done in time"]
    elsif status.signaled?
      ["crashed", "ended by #{Signal.signame(status.termsig)}"]
    elsif !status.success?
      (runs > 0 && status.exitstatus == 1) ? ["failed", nil] : ["crashed", "ended with status #{status.exitstatus}"]
    elsif runs.zero?
      ["empty", "ran no tests"]
    else
      ["passed", nil]
    end
  end

  def show(file_run, outcome, message, rows, runs, seconds, cpu)
    skips = rows.sum { |row| row.fetch("skips", []).size }
    text = format("%s%-58s %4d runs%s  %.1f s, CPU %.1f s%s\n", place, file_run.file, runs,
      skips.zero? ? "" : ", #{skips} skipped", seconds, cpu,
      (outcome == "passed") ? "" : "  #{[outcome.upcase, message].compact.join(": ")}")
    # Ruby's report of a crash ends in long lists of files and of memory.
    text << file_run.output.sub(/^\* Loaded features:.*/m, "").gsub(/^/, "    ") << "\n" unless outcome == "passed"
    $stdout.syswrite(text) # at once: drivers that run side by side write to the same place
  end

  # Prefixes lines with the driver's name, where there are several drivers.
  def place
    @slots_folder ? format("%-16s ", "#{RUBY_VERSION} #{TestRecord.column}") : ""
  end
end

if $PROGRAM_NAME == __FILE__
  alone = ARGV.delete("--alone")
  driver = TestDriver.new(ARGV.empty? ? ["test"] : ARGV)
  exit alone ? driver.run_alone : driver.run
end
