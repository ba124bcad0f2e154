# subject.rb SEED SECONDS DIR
require "heddle"
require "socket"
require "json"
require "digest"
require "zlib"
require "heddle/metrics"
SEED, SECONDS, DIR = Integer(ARGV[0]), Float(ARGV[1]), ARGV[2]
ROOT_PID = Process.pid
class FuzzError < StandardError; end
class FuzzSignal < StandardError; end
R = Random.new(SEED)
OPS = Hash.new(0)
ONLY = ENV["FUZZ_ONLY"]&.split(",")
WITHOUT = (ENV["FUZZ_WITHOUT"] || "").split(",")
def on?(what, chance = 0.7) = (r = R.rand < chance; (ONLY ? ONLY.include?(what) : r) && !WITHOUT.include?(what))
def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
STDERR.sync = true
def wrong(what, error = nil)
  text = "WRONG seed=#{SEED} pid=#{$$} #{what}"
  text += " #{error.class}: #{error.message[0, 300]} | #{(error.backtrace || []).first(8).join(" < ")}" if error
  STDERR.write(text + "\n")
end
EXPECTED = [FuzzError, FuzzSignal, Heddle::TraceInProgress]
def fine?(error) = (error.is_a?(ThreadError) && error.message =~ /trap context/ && $handler) || EXPECTED.any? { |e| e === error } || error.is_a?(Heddle::Cancellation) || (error.class.name =~ /\AHeddle::(TaskCancelled|DeadlineExceeded|PoolTimeout|PoolClosed|TaskKilled|Timeout)/) || (error.cause && error.cause != error && fine?(error.cause) && error.class.name =~ /Heddle/)
def guarded(what)
  yield
rescue SystemExit, SignalException, NoMemoryError
  raise
rescue Exception => e
  fine?(e) ? raise : (wrong(what, e) ; raise FuzzError, "after wrong")
end
def top(what)
  guarded(what) { yield }
rescue SystemExit, SignalException
  raise
rescue Exception => e
  wrong(what, e) unless fine?(e)
end

def stall(rng)
  case rng.rand(9)
  when 0 then t = now; nil while now - t < rng.rand * 0.06
  when 1 then Digest::SHA256.hexdigest("x" * rng.rand(1..4_000_000))
  when 2 then Zlib.deflate("abc" * rng.rand(1..400_000))
  when 3 then ("a" * 25) =~ /(a|a)*b/ if RUBY_VERSION < "3.2" && rng.rand < 0.02; ("a" * rng.rand(20..80)) =~ /a*a*a*b/
  when 4 then GC.start
  when 5 then Array.new(rng.rand(50_000)) { |i| i.to_s }.sort
  when 6 then File.open("/tmp/fuzz/lock", "w") { |f| f.flock(File::LOCK_EX); t = now; nil while now - t < 0.01 }
  when 7 then Marshal.load(Marshal.dump((0..rng.rand(20_000)).map(&:to_s)))
  else eval((1..rng.rand(300)).map { |i| "x#{i} = #{i}" }.join(";"))
  end
end

class World
  attr_reader :queue, :mutex, :semaphore, :pool
  def initialize
    @queue = Thread::Queue.new; @sized = Thread::SizedQueue.new(2); @mutex = Mutex.new; @semaphore = Heddle::Semaphore.new(2)
    @cond = ConditionVariable.new
    @pool = Heddle::ResourcePool.new(size: 2, timeout: 0.3) { Object.new }
  end

  def wait(rng, tasks)
    OPS[:wait] += 1
    case rng.rand(16)
    when 0 then @queue << 1
    when 1 then @queue.pop(true) rescue nil
    when 2 then Heddle.deadline(0.02) { @queue.pop }
    when 3 then @mutex.synchronize { sleep(rng.rand * 0.005) }
    when 4 then r, w = IO.pipe; Heddle.spawn(name: "w") { sleep(rng.rand * 0.01); w.write("x"); w.close }; r.read; r.close
    when 5 then a, b = UNIXSocket.pair; begin Heddle.deadline(0.02) { a.read(1) } ensure a.close; b.close end
    when 6 then sleep(rng.rand * 0.02)
    when 7 then (t = tasks.sample(random: rng)) && Heddle.deadline(0.03) { t.value }
    when 8 then @semaphore.acquire { sleep(rng.rand * 0.005) }
    when 9 then @pool.with { sleep(rng.rand * 0.005) }
    when 10 then Thread.pass
    when 11 then Heddle.offload { sleep(rng.rand * 0.005) }
    when 12 then Thread.new { sleep 0.003 }.join
    when 13 then IO.select([$stdin], nil, nil, 0.004)
    when 14 then Heddle.deadline(0.02) { @mutex.synchronize { @cond.wait(@mutex, 0.01) } }
    else Addrinfo.getaddrinfo("localhost", 80) 
    end
  rescue Heddle::DeadlineExceeded, Heddle::PoolTimeout
  end

  def work(rng, until_time, depth = 0)
    tasks = []
    while now < until_time
      OPS[:task_ops] += 1
      case rng.rand(20)
      when 0..3
        if tasks.size < 15 && depth < 3
          seed = rng.rand(1 << 30)
          limit = now + rng.rand * 0.3
          limit = until_time if limit > until_time
          tasks << Heddle.spawn(name: [nil, "t", "näme\u{1F600}", "\"\\\n\xff\0", "x" * 200].sample(random: rng)) { guarded("task") { work(Random.new(seed), limit, depth + 1) } }
        end
      when 4 then t = tasks.sample(random: rng) and t.cancel
      when 5 then stall(rng) if rng.rand < 0.3
      when 6 then tasks.shift&.then { |t| begin t.value; rescue Heddle::TaskCancelled, Heddle::DeadlineExceeded, FuzzError; end }
      when 7 then raise FuzzError, "of a task" if depth > 0 && rng.rand < 0.15
      when 8 then FORKS && rng.rand < 0.1 && forked(rng, "task")
      when 9 then API.sample(random: rng).call(rng) if rng.rand < 0.5
      else wait(rng, tasks)
      end
      tasks.reject! { |t| t.ended? && begin t.value; true; rescue SystemExit, SignalException; raise; rescue Exception => e; fine?(e) || wrong("value", e); true; end }
    end
  ensure
    tasks&.each { |t| t.cancel }
    tasks&.each { |t| begin t.value; rescue Heddle::TaskCancelled, Heddle::DeadlineExceeded, FuzzError; end } if rng.rand < 0.3
  end
end

$children = []
def forked(rng, from)
  return if $$ != ROOT_PID || ($forked = ($forked || 0) + 1) > 14
  seed = rng.rand(1 << 30)
  OPS[:fork] += 1
  pid = case rng.rand(5)
  when 0 then Process.spawn(RbConfig.ruby, "--disable-gems", "-e", "sleep 0.05", [:out, :err] => "/dev/null")
  when 1 then fork { exec("/bin/sleep", "0.1") }
  else fork { child(Random.new(seed), from) }
  end
  $children << pid
end

def child(rng, from)
  $handler = true if from == "handler"
  STDERR.write("child #{$$} of #{from}\n")
  Thread.new { sleep 25; wrong("child of #{from} hangs"); Process.kill(:ABRT, $$) } if rng.rand < 0.9
  top("child of #{from}") do
    case rng.rand(4)
    when 0 then nil
    when 1 then all(rng, 0.3)
    when 2 then fork { top("grandchild") { all(rng, 0.2) } }; all(rng, 0.2)
    else
      w = Heddle.watch_stalls(0.01) { |s| s.to_s }
      trace(rng) { Heddle.run { World.new.work(rng, now + 0.2) } }
      check_metrics({})
      w.stop
    end
  end
  case rng.rand(6)
  when 0 then exit!(0)
  when 1 then exit(0)
  when 2 then abort
  when 3 then Process.kill(:TERM, $$); sleep 1
  when 4 then Process.kill(:KILL, $$); sleep 1
  end
end

def all(rng, seconds)
  til = now + seconds
  w = Heddle.watch_stalls(0.01 + rng.rand * 0.05) { |s| s.to_s.encode("UTF-8"); JSON.generate(s.to_s) }
  t = Thread.new { seen = {}; while now < til; check_metrics(seen); sleep 0.01; end }
  trace(rng) { Heddle.run { World.new.work(rng, til) } }
  t.join
  Heddle.insight(false) if rng.rand < 0.3
  w.stop
end

$traces = 0
def trace(rng)
  path = "#{DIR}/trace-#{$$}-#{$traces += 1}-#{rng.rand(1 << 30)}.json"
  begun = false
  OPS[:trace] += 1
  pid = $$
  begin
    Heddle.trace(path) { begun = true; yield }
  rescue Heddle::TraceInProgress
    return
  ensure
    File.write("#{path}.done", "") if begun && $$ == pid && $$ == Process.pid
  end
end

def check_metrics(seen)
  OPS[:metrics] += 1
  Heddle.metrics.each do |m|
    m.values.each do |labels, v|
      n = m.kind == :histogram ? v.count : v
      wrong("metric #{m.name} #{labels} is #{n}") if n < 0
      key = [m.name, labels]
      if m.kind != :gauge
        wrong("metric #{m.name} #{labels} fell #{seen[key]} -> #{n}") if seen[key] && seen[key] > n
        if m.kind == :histogram
          wrong("counts #{m.name}") if v.counts.sum != v.count || v.sum < 0
          wrong("sum fell #{m.name}") if seen[[key, :sum]] && seen[[key, :sum]] > v.sum
          seen[[key, :sum]] = v.sum
        end
        seen[key] = n
      end
    end
  end
end

SEEN_STALLS = Hash.new(0)
API = [
  ->(rng) { OPS[:watch] += 1; w = Heddle.watch_stalls(0.01 + rng.rand * 0.09) { |s| SEEN_STALLS[s.reason] += 1; s.to_s; raise FuzzError, "of a report" if rng.rand < 0.01 }; sleep(rng.rand * 0.05); w.stop; w.stop if rng.rand < 0.2 },
  ->(rng) { OPS[:during] += 1; Heddle.watch_stalls(0.01) { |s| s.inspect; sleep(rng.rand * 0.01) }.during { stall(rng) } },
  ->(rng) { trace(rng) { sleep(rng.rand * 0.1); raise FuzzError, "in a trace" if rng.rand < 0.1 } },
  ->(rng) { check_metrics({}) },
  ->(rng) { OPS[:measure] += 1; Heddle.measure_times = (rng.rand < 0.5) },
  ->(rng) { OPS[:dump] += 1; Heddle.dump(File.open(File::NULL, "w")) },
  ->(rng) { OPS[:insight] += 1; Heddle.insight(rng.rand < 0.6) if TOGGLE },
  ->(rng) { OPS[:stats] += 1; Heddle.stats },
  ->(rng) { if PROM then OPS[:prom] += 1; Prometheus::Client::Formats::Text.marshal(Prometheus::Client.registry); end },
]

PROM = on?("prometheus", 0.4)
if PROM
  require "prometheus/client"; require "prometheus/client/formats/text"; require "heddle/prometheus"
  Heddle::PrometheusSupport.register
end
TOGGLE = on?("toggle", 0.4)
FORKS = on?("forks", 0.6)
INSIGHT = on?("insight", 0.9)
SIGNALS = on?("signals", 0.5)
GCS = on?("gc", 0.5)
KILLS = on?("kills", 0.4)
TRACES = on?("traces", 0.6)
WATCHES = on?("watches", 0.7)
ENDING = ONLY ? nil : [nil, nil, :exit, :exit!, :abort, :term, :kill, :main_raise].sample(random: R)
Heddle.insight if INSIGHT
$til = now + SECONDS
STDERR.write("seed #{SEED}: prom=#{PROM} toggle=#{TOGGLE} forks=#{FORKS} insight=#{INSIGHT} signals=#{SIGNALS} gc=#{GCS} kills=#{KILLS} traces=#{TRACES} watches=#{WATCHES} ending=#{ENDING}\n")

HandlerRandom = Random.new(SEED + 1)
if SIGNALS
  trap("USR1") { OPS[:usr1] += 1; raise FuzzSignal, "of a handler" if HandlerRandom.rand < 0.3 && Thread.main[:in_top] }
  trap("USR2") { forked(HandlerRandom, "handler") if FORKS && HandlerRandom.rand < 0.5 }
  trap("URG") {} if R.rand < 0.3
  trap("WINCH") {} if R.rand < 0.3
end

threads = []
start = lambda do |name, &block|
  seed = R.rand(1 << 30)
  t = Thread.new do
    rng = Random.new(seed)
    while now < $til
      begin
        top(name) { block.call(rng) }
      rescue FuzzError, FuzzSignal
      end
    end
  rescue FuzzError, FuzzSignal
  end
  t.report_on_exception = false
  t.name = name
  threads << t
  t
end

killable = []
R.rand(0..3).times { |i| killable << start.call("loop#{i}") { |rng| OPS[:run] += 1; Heddle.run { World.new.work(rng, [now + rng.rand * 0.8, $til].min) } } }
killable << start.call("api") { |rng| API.sample(random: rng).call(rng); sleep(rng.rand * 0.02) }
killable << start.call("api2") { |rng| API.sample(random: rng).call(rng); sleep(rng.rand * 0.02) } if R.rand < 0.5
killable << start.call("tracer") { |rng| trace(rng) { sleep(rng.rand * 0.5) }; sleep(rng.rand * 0.1) } if TRACES
start.call("watcher") { |rng| w = Heddle.watch_stalls([0.01, 0.02, 0.1].sample(random: rng)) { |s| SEEN_STALLS[s.reason] += 1; JSON.generate(s.to_s) }; sleep(rng.rand * 0.3); w.stop; sleep(rng.rand * 0.02) } if WATCHES
seen = {}
start.call("metrics") { |rng| check_metrics(seen); sleep(rng.rand * 0.02) }
start.call("deadline") { |rng| begin Heddle.deadline(0.005) { stall(rng); sleep 0.001 }; rescue Heddle::DeadlineExceeded; end; sleep(rng.rand * 0.1) } if R.rand < 0.5
start.call("gc") { |rng|
  OPS[:gc] += 1
  case rng.rand(4)
  when 0 then GC.start
  when 1 then GC.compact
  when 2 then ENV['FUZZ_STRESS'] && begin GC.stress = true; 5.times { "x" * 10 } ensure GC.stress = false end
  else GC.respond_to?(:verify_compaction_references) && rng.rand < 0.05 ? GC.verify_compaction_references(toward: :empty, **(RUBY_VERSION < "3.2" ? {double_heap: true} : {expand_heap: true})) : GC.start(full_mark: false)
  end
  sleep(rng.rand * 0.2) } if GCS
start.call("forker") { |rng| forked(rng, "thread"); sleep(rng.rand * 0.5) } if FORKS
start.call("signals") { |rng| OPS[:signal] += 1; Process.kill(%i[URG WINCH USR1 USR2 URG].sample(random: rng), ROOT_PID) if $$ == ROOT_PID; sleep(rng.rand * 0.02) } if SIGNALS
start.call("killer") { |rng| OPS[:raise] += 1; t = killable.sample(random: rng); rng.rand < 0.03 ? t.kill : t.raise(FuzzError, "from outside") if t&.alive?; sleep(rng.rand * 0.2) } if KILLS

if ENDING
  Thread.new do
    sleep(SECONDS * (0.3 + 0.6 * Random.new(SEED + 7).rand))
    case ENDING
    when :exit then Thread.main.raise(SystemExit) 
    when :exit! then exit!(0)
    when :abort then begin abort; rescue SystemExit; Thread.main.raise(SystemExit); end
    when :term then Process.kill(:TERM, $$)
    when :kill then Process.kill(:KILL, $$)
    when :main_raise then Thread.main.raise(SystemExit)
    end
  end
end

rng = Random.new(SEED + 3)
while now < $til
  begin
    Thread.main[:in_top] = true
    begin
      top("main") { OPS[:run] += 1; Heddle.run { World.new.work(rng, [now + rng.rand * 0.8, $til].min) } }
    ensure
      Thread.main[:in_top] = false
    end
  rescue FuzzSignal, FuzzError
  end
end
%w[USR1 USR2].each { |s| trap(s, "IGNORE") } if SIGNALS
threads.each do |t|
  t.join(20) || (wrong("thread #{t.name} does not end #{t.backtrace&.first(5)}"))
rescue FuzzError, FuzzSignal
end
$children.each { |pid| Process.wait(pid) rescue nil }
# quiet
if $$ == ROOT_PID && INSIGHT
  top("quiet") do
    path = Heddle.insight
    c = UNIXSocket.new(path); c.puts "ps wait=20000"
    rows = c.read.lines.map { |l| JSON.parse(l) }
    wrong("no end") unless rows.last["end"]
    left = rows.select { |r| r["task"] || (r["loop"] && !r["task"]) }
    STDERR.write("LEFT seed=#{SEED} kills=#{KILLS} #{left.size} #{left.first(3)}\n") unless left.empty?
    wrong("no ruby #{rows[-2]}") unless rows.any? { |r| r["ruby"] }
    m = Heddle.metrics
    s, e, t = m["heddle.tasks.started"].values.values.sum, m["heddle.tasks.ended"].values.values.sum, m["heddle.tasks"].values.values.sum
    STDERR.write("UNEVEN seed=#{SEED} started #{s} ended #{e} tasks #{t}\n") if s != e + t
    wrong("negative pool") if m["heddle.pool.used"].values.values.any?(&:negative?)
  end
end
STDERR.write("OPS #{OPS.to_a.map { |k, v| "#{k}=#{v}" }.join(" ")} STALLS #{SEEN_STALLS}\n")
