# frozen_string_literal: true

# Runs test files on the Ruby that runs this, each in a process of its own with a hard deadline:
#
#   ruby test/support/driver.rb test/loop test/names/hosts_test.rb
#
# A file fails when a test of it does, when its process crashes or is late, and when it ran no test. How each file ended
# goes to the record (see record.rb). The processes are forked from this one, which spares each the loading of gems.

require "minitest"
require "tempfile"
require_relative "record"

class TestDriver
  FILE_SECONDS = Integer(ENV.fetch("HEDDLE_TEST_FILE_TIMEOUT", 300))

  def initialize(paths)
    Dir.chdir(TestRecord::ROOT)
    @files = paths.flat_map { |path| File.directory?(path) ? Dir["#{path}/**/*_test.rb"] : [path] }.uniq.sort
    @log = Tempfile.new("heddle-test")
    @record = TestRecord.path || (@own_record = Tempfile.new("heddle-record")).path
    ENV["HEDDLE_TEST_RECORD"] = @record
  end

  def run
    abort "driver: no test files" if @files.empty?
    passed = @files.map { |file| run_file(file) }
    passed.all?
  end

  private

  def run_file(file)
    @log.truncate(0)
    offset = File.exist?(@record) ? File.size(@record) : 0
    start = now
    pid = fork { load_tests(file) }
    late = !wait(pid, start + FILE_SECONDS)
    rows = File.exist?(@record) ? File.read(@record, nil, offset).to_s.lines.map { |line| JSON.parse(line) } : []
    runs = rows.sum { |row| row.fetch("runs", 0) }
    outcome, message = judge(late, runs)
    TestRecord.append("file", {file: file, outcome: outcome, message: message, seconds: (now - start).round(2)})
    show(file, outcome, message, rows, runs, now - start)
    outcome == "passed"
  end

  def load_tests(file)
    Process.setpgid(0, 0)
    $stdin.reopen(File::NULL)
    $stdout.reopen(@log.path, "a")
    $stderr.reopen($stdout)
    $stdout.sync = true
    @log.close
    $PROGRAM_NAME = file
    ARGV.clear
    $LOAD_PATH.unshift(File.join(TestRecord::ROOT, "lib"), File.join(TestRecord::ROOT, "test"))
    load File.expand_path(file)
  end

  # Waits for the process and ends what is left of its group. False if it had to be ended.
  def wait(pid, deadline)
    until (@status = Process.wait2(pid, Process::WNOHANG)&.last)
      if now > deadline
        signal(:TERM, pid)
        sleep 2
        signal(:KILL, pid)
        @status = Process.wait2(pid).last
        return false
      end
      sleep 0.01
    end
    true
  ensure
    signal(:KILL, pid)
  end

  def signal(name, pid)
    Process.kill(name, -pid)
  rescue Errno::ESRCH, Errno::EPERM
    nil
  end

  def judge(late, runs)
    if late
      ["late", "not done after #{FILE_SECONDS} s"]
    elsif @status.exitstatus == 70 || File.read(@log.path).scrub.include?("\nwatchdog: ")
      ["late", "a test of it was not done in time"]
    elsif @status.signaled?
      ["crashed", "ended by #{Signal.signame(@status.termsig)}"]
    elsif !@status.success?
      (runs > 0 && @status.exitstatus == 1) ? ["failed", nil] : ["crashed", "ended with status #{@status.exitstatus}"]
    elsif runs.zero?
      ["empty", "ran no tests"]
    else
      ["passed", nil]
    end
  end

  def show(file, outcome, message, rows, runs, seconds)
    skips = rows.sum { |row| row.fetch("skips", []).size }
    puts format("%-58s %4d runs%s  %.1f s%s", file, runs, skips.zero? ? "" : ", #{skips} skipped", seconds,
      (outcome == "passed") ? "" : "  #{[outcome.upcase, message].compact.join(": ")}")
    # Ruby's report of a crash ends in long lists of files and of memory.
    puts File.read(@log.path).scrub.sub(/^\* Loaded features:.*/m, "").gsub(/^/, "    ") unless outcome == "passed"
    $stdout.flush
  end

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

if $PROGRAM_NAME == __FILE__
  exit TestDriver.new(ARGV.empty? ? ["test"] : ARGV).run
end
