require "heddle"
require "digest"
require "zlib"
require "tempfile"; require "sqlite3"
CL = Process::CLOCK_MONOTONIC
def now = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
CASES = {}; CASES_ = {}
def compute(s) = (t = now; nil while now - t < s)
def arith(s) = (t = now; i = 0; ((i += 1) while i % 100_000 != 99_999; i += 1) while now - t < s)
CASES[:ruby_arith] = [[:ruby], ->{ arith(0.15) }]
CASES[:ruby_clock] = [[:ruby], ->{ compute(0.15) }]
CASES[:ruby_alloc] = [[:ruby], ->{ t = now; (Time.now; "a".dup) while now - t < 0.15 }]
CASES[:ruby_each] = [[:ruby], ->{ t = now; loop { 1000.times { |i| i.to_s }; break if now - t > 0.15 } }]
BIG = "x" * 50_000_000
CASES[:digest] = [[:native], ->{ Digest::SHA256.hexdigest(BIG) }]
CASES[:zlib] = [[:native], ->{ Zlib.crc32(BIG);  Zlib.adler32(BIG); Zlib.crc32(BIG); Zlib.crc32(BIG); Zlib.crc32(BIG);Zlib.crc32(BIG);Zlib.crc32(BIG); Zlib.crc32(BIG)  }]
RE = /\A(a|aa)+\1\z/
SUBJ = "a" * (ENV["REN"]||29).to_i
CASES[:regex] = [[:native], ->{ "#{SUBJ}b".match?(RE) }]
CASES_[:pow] = [[:native], ->{ (7**400_000).to_s.size }]
CASES[:sort] = [[:native], ->{ Array.new(600_000) { |i| -i.to_s.hash }.sort }] if ENV["SORT"]
DB = SQLite3::Database.new(":memory:")
CASES[:sqlite3] = [[:native], ->{ DB.execute("with recursive t(n) as (select 1 union all select n + 1 from t where n < 1000000) select count(*) from t") }]
HEAP = Array.new(1_000_000) { Object.new }
CASES[:gc] = [[:gc], ->{ 3.times { GC.start } }]
CASES[:flock] = [[:blocked], ->{
  f = File.open("/tmp/fl.lock", "w")
  pid = nil
  r, w = IO.pipe
  pid = Process.spawn("ruby", "-e", 'f=File.open("/tmp/fl.lock","w"); f.flock(File::LOCK_EX); puts 1; $stdout.flush; sleep 0.4', out: w)
  r.gets
  f.flock(File::LOCK_EX); f.close; Process.wait pid; r.close; w.close }]
CASES[:gvl] = [[:gvl], ->{ th = Thread.new { Thread.current.name = "hog"; arith(0.5) }; sleep 0.05; t = now; sleep 0.1; sleep 0.01;  th.join }]
CASES[:sigstop] = [[:kernel], ->{
   pid = $$; sh = Process.spawn("sh", "-c", "sleep 0.05; kill -STOP #{pid}; sleep 0.3; kill -CONT #{pid}"); compute(0.12);  Process.wait sh }]
only = ENV["ONLY"]&.split(",")&.map(&:to_sym)
n = (ENV["N"] || 3).to_i
got = []
CASES.each do |name, (want, work)|
  next if only && !only.include?(name)
  res = n.times.map {
    watch = Heddle.watch_stalls(0.05) { |s| got << s }
    Heddle.run { Heddle.spawn(name: name.to_s) { sleep 0.02; work.call; sleep 0.01 } }
    watch.stop; Heddle::StallWatch.settle(1.0)
    bad = got.dup
    s = got.map(&:reason); x = got.map { |g| g.backtrace.first.to_s[/in .*/].to_s + (g.culprit||"") }; q= got.map { |g| [g.seconds.round(2), g.cpu&.round(2)]}; got.clear
    # coalescing: wait
    got.clear
    [s.any? { |r| want.include?(r) }, s, x, q]
  }
  puts "#{name}: #{res.count(&:first)}/#{n}  #{res.map { |r| r[1..] }.tally.sort_by { -_2 }.first(4).inspect}"
end
