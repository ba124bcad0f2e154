# frozen_string_literal: true

require "fileutils"
require "io/wait"
require "json"
require_relative "../../lib/heddle/core/clock"
require_relative "slowness"

# The steps of bin/test: commands with a limit, each announced with its number, the time so far and the time that it
# took last time. What a command prints appears at once; a command that is silent for QUIET seconds is named.
class TestSteps
  include Heddle::Clock

  QUIET = 15
  MORE = "HEDDLE_TEST_SLOWNESS=#{(Slowness::FACTOR * 3).round} bin/test triples all limits"
  TIMES = File.join(ENV.fetch("XDG_CACHE_HOME") { File.join(Dir.home, ".cache") }, "heddle", "times.json")

  # @param names [Array<String>] of the steps that are known beforehand
  def initialize(names, quiet: QUIET, out: $stdout)
    @expected = names
    @quiet = quiet
    @out = out
    @begun = []
    @started = now
    @last_times = load_times
    @times = {}
    @lock = Mutex.new
  end

  def seconds = now - @started

  # Yields, between two lines that tell of the step.
  #
  # @return [Object] the block's value
  def announce(name)
    began = now
    say "\n== #{heading(name)}"
    value = yield
    @lock.synchronize { @times[name] = (now - began).round(1) }
    say "== #{name}: done (#{clock(now - began)})"
    value
  end

  # Runs a command.
  #
  # @param seconds [Numeric] the limit, stretched by the machine's slowness
  # @return [Process::Status]
  def run(name, seconds, *command, environment: {})
    limit = Slowness.stretch(seconds).ceil
    reader, writer = IO.pipe
    pid = Process.spawn(environment, "timeout", "--kill-after=10", limit.to_s, *command,
      in: File::NULL, out: writer, err: writer)
    writer.close
    waiter = Process.detach(pid)
    copy(name, reader, waiter)
    status = waiter.value
    say "#{name}: ended by its limit of #{limit} s; #{MORE}" if late?(status)
    status
  ensure
    reader&.close
    if waiter&.alive? # on an interrupt: `timeout` has its own process group
      Process.kill(:TERM, pid)
      waiter.join
    end
  end

  # Whether the limit has ended the command.
  def late?(status) = status.exitstatus == 124

  # Keeps the times for the next run.
  def save
    FileUtils.mkdir_p(File.dirname(TIMES))
    File.write(TIMES, JSON.pretty_generate(@last_times.merge(@times)))
  rescue SystemCallError => error
    warn "bin/test: the times of the steps are not kept: #{error.message}"
  end

  private

  def heading(name)
    last = @last_times[name]
    number, count = @lock.synchronize do
      @begun << name
      [@begun.size, (@expected | @begun).size]
    end
    "Step #{number} of #{count}: #{name} (#{clock(seconds)} so far#{"; it took #{clock(last)} last time" if last})"
  end

  # Grandchildren may keep the pipe open after the command has ended.
  def copy(name, reader, waiter)
    began = said = now
    loop do
      if reader.wait_readable(waiter.alive? ? 0.2 : 0)
        text = reader.read_nonblock(1 << 16, exception: false) or return
        next if text == :wait_readable

        @out.write(text)
        said = now
      elsif !waiter.alive?
        return
      elsif now - said >= @quiet
        say "#{name}: at work for #{clock(now - began)}"
        said = now
      end
    end
  end

  def say(text) = @out.write("#{text}\n")

  def clock(seconds)
    (seconds < 60) ? "#{seconds.round} s" : format("%d min %d s", *seconds.round.divmod(60))
  end

  def load_times
    JSON.parse(File.read(TIMES))
  rescue SystemCallError, JSON::ParserError
    {}
  end
end
