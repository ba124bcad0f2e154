# frozen_string_literal: true

require "digest"
require "heddle"
require "sqlite3"
require "tempfile"
require "zlib"

# Counts whether Heddle.watch_stalls gives stalls of every kind their reason, which a busy machine blurs:
#
#   ruby -Ilib test/support/named_stalls.rb TIMES [NAME…]
class NamedStalls
  LIMIT = 0.05
  BYTES = "x" * 50_000_000
  QUERY = "with recursive t(n) as (select 1 union all select n + 1 from t where n < 1000000) select count(*) from t"
  REASONS = {
    arithmetic: :ruby, clock: :ruby, allocations: :ruby, blocks: :ruby, digest: :native, checksum: :native,
    regexp: :native, query: :native, collections: :gc, lock: :blocked, other_thread: :gvl, stop: :kernel
  }.freeze
  private_constant :LIMIT, :BYTES, :QUERY, :REASONS

  def initialize(times, names)
    @times = times
    @reasons = names.any? ? REASONS.slice(*names.map(&:to_sym)) : REASONS
    @heap = Array.new(1_000_000) { Object.new }
    @database = SQLite3::Database.new(":memory:")
    @file = Tempfile.new("heddle")
    puts "Ruby #{RUBY_VERSION}, backend #{Heddle::Scheduler.new.backend}"
  end

  # @return [Boolean] whether all had their reason
  def run = @reasons.map { |name, reason| count(name, reason) }.all?

  private

  def count(name, reason)
    wrong = Array.new(@times) { reports(name) }.reject { |stalls| stalls.map(&:reason).include?(reason) }
    puts "#{name}: #{@times - wrong.size} of #{@times} were #{reason}"
    wrong.each { |stalls| puts "  not this one: #{stalls.empty? ? "no report" : stalls.join("\n  ")}" }
    wrong.empty?
  end

  def reports(name)
    seen = []
    Heddle.watch_stalls(LIMIT) { |stall| seen << stall }.during do
      Heddle.run do
        Heddle.spawn(name: name.to_s) do
          sleep(0.02)
          send(name)
          sleep(0.01)
        end
      end
    end
    seen
  end

  def cpu_time = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)

  # Of CPU time.
  def compute(seconds)
    limit = cpu_time + seconds
    number = 0
    number += 1 while (number % 1000 != 0) || cpu_time < limit
  end

  # ---- the stalls

  def arithmetic = compute(0.15)

  def clock
    limit = cpu_time + 0.15
    nil while cpu_time < limit
  end

  def allocations
    limit = cpu_time + 0.15
    [Time.now, +"a"] while cpu_time < limit
  end

  def blocks
    limit = cpu_time + 0.15
    1000.times { |number| number.to_s } while cpu_time < limit
  end

  def digest = Digest::SHA256.hexdigest(BYTES)

  def checksum = 8.times { Zlib.crc32(BYTES) }

  def regexp = "#{"a" * 29}b".match?(/\A(a|aa)+\1\z/)

  def query = @database.execute(QUERY)

  def collections = 3.times { GC.start }

  def lock
    code = "File.open(ARGV[0]) { |f| f.flock(File::LOCK_EX); puts; $stdout.flush; sleep(0.4) }"
    holder = IO.popen([RbConfig.ruby, "-e", code, @file.path])
    holder.gets
    @file.flock(File::LOCK_EX)
    @file.flock(File::LOCK_UN)
    holder.close
  end

  def other_thread
    thread = Thread.new { compute(0.5) }
    sleep(0.05)
    sleep(0.1)
    sleep(0.01)
    thread.join
  end

  # Short of the limit, were it not for the stop.
  def stop
    stopper = IO.popen("read begin; kill -STOP #{Process.pid}; sleep 0.3; kill -CONT #{Process.pid}", "w")
    sleep(0.1)
    stopper.puts
    compute(LIMIT / 2)
    stopper.close
  end
end

exit NamedStalls.new(Integer(ARGV.fetch(0, 3)), ARGV.drop(1)).run
