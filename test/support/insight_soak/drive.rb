# drive.rb RUBY BACKEND FIRST_SEED COUNT SECONDS [debug]
require "socket"
require "json"
require "fileutils"
version, backend, first, count, seconds, debug = ARGV
tree = ENV["FUZZ_TREE"] || "/work/r_fuzz"
until_time = ENV["FUZZ_UNTIL"] && Time.parse(ENV["FUZZ_UNTIL"])
def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
asked = answers = anomalies = 0
total = Hash.new(0)
bad = []
sleep 0; first.to_i.upto(first.to_i + count.to_i - 1) do |seed|
  break if File.exist?("/tmp/fuzz/STOP")
  dir = "/tmp/fz#{version}#{backend[0]}#{seed}"
  FileUtils.rm_rf(dir); Dir.mkdir(dir, 0o700)
  env = {"XDG_RUNTIME_DIR" => dir, "HEDDLE_BACKEND" => backend, "HEDDLE_INSIGHT" => nil}
  env["HEDDLE_NATIVE_DIR"] = "#{tree}/tmp/native/debug/3.1.2" if debug
  problems = []
  err = "#{dir}/err"
  pid = Process.spawn(env, "ruby", "-I#{tree}/lib", "/tmp/fuzz/subject.rb", seed.to_s, seconds, dir, out: "#{dir}/out", err: err, in: "/dev/null", pgroup: true)
  start = now
  status = nil
  done = false
  rng = Random.new(seed)
  parse = lambda do |text, whole|
    rows = text.split("\n", -1)
    rest = rows.pop
    rows = rows.map { |l| JSON.parse(l) rescue (problems << "answer is no JSON: #{l[0, 300].inspect}"; nil) }.compact
    ended = rows.last && rows.last["end"]
    loops = rows.select { |r| r["loop"] && !r["task"] }
    tasks = rows.select { |r| r["task"] }
    rows.each do |r|
      r.each { |k, v| problems << "negative #{k} #{r}" if v.is_a?(Numeric) && v < 0 && k != "descriptor" }
    end
    problems << "double loops #{loops}" if loops.map { |r| r["loop"] }.uniq.size != loops.size
    doubles = tasks.group_by { |r| r["task"] }.select { |_, v| v.size > 1 }
    problems << "double tasks #{doubles.first}" unless doubles.empty?
    tasks.each do |t|
      problems << "parent #{t}" if t["parent"] >= t["task"]
      anomalies += 1 if t["loop"] != 0 && loops.none? { |l| l["loop"] == t["loop"] }
      anomalies += 1 if t["state"] == "running" && loops.none? { |l| l["runs"] == t["task"] } && t["for"] > 1
    end
    problems << "tasks too long #{tasks.max_by { |t| t["for"] }}" if tasks.any? { |t| t["for"] > 100 || t["ran"] > 100 || t["ready"] > 100 }
    answers += 1 if ended
  end
  asker = Thread.new do
    until done
      Dir.glob("#{dir}/heddle/*.sock").sample(2, random: rng).each do |path|
        asked += 1
        c = UNIXSocket.new(path)
        case rng.rand(8)
        when 0 then c.write(rng.bytes(rng.rand(1..200)))
        when 1 then c.write("ps"); sleep(rng.rand * 0.5)
        when 2 then c.write("why #{rng.rand(300)}\n"); c.close_write if rng.rand < 0.3; parse.call(c.read, true)
        when 3 then c.write("ps backtraces wait=#{rng.rand(-5..3000)}\n"); parse.call(c.read, true)
        when 4 then c.write("ps\n"); c.close # does not read
        when 5 then c.write(["why -5\n", "why 99999999999999999999\n", "\n", "why\n", "x y z\n", "ps wait=\n", "\0\n", "\xff\xfe\n"].sample(random: rng)); parse.call(c.read, true)
        else c.write("ps\n"); parse.call(c.read, true)
        end
        c.close
      rescue SystemCallError
      end
      sleep(rng.rand * 0.05)
    end
  end
  cli = Thread.new do
    sleep 1 + rng.rand
    [["ps", "--json"], ["tree"], ["why", :pid, rng.rand(1..50).to_s]].sample(random: rng).then do |words|
      words = words.include?(:pid) ? words.map { |w| w == :pid ? pid.to_s : w } : [words[0], pid.to_s, *words[1..]]
      out = IO.popen({**env, "XDG_RUNTIME_DIR" => dir}, ["ruby", "-I#{tree}/lib", "#{tree}/exe/heddle", *words, err: File::NULL], &:read)
      total[:cli] += 1
      out.each_line { |l| JSON.parse(l) } if words.include?("--json") && out !~ /^heddle: / 
      problems << "cli #{words}: #{out[0, 500]}" if out =~ /\.rb:\d+:in .*\(\w*Error\)|this is no answer/
    rescue JSON::ParserError => e
      problems << "cli json #{e.message[0, 200]} #{out[0, 200].inspect}"
    end
  end
  loop do
    _, status = Process.wait2(pid, Process::WNOHANG)
    break if status
    if now - start > 60
      problems << "HANG"
      pids = `pgrep -g #{pid}`.split
      File.write("/tmp/fuzz/hang-#{version}-#{backend}-#{seed}.txt", pids.map { |p| "== #{p} #{File.read("/proc/#{p}/cmdline") rescue ""}\n" + `gdb -p #{p} -batch -ex 'thread apply all bt 40' 2>/dev/null` }.join)
      Process.kill(:KILL, -pid)
      _, status = Process.wait2(pid)
      break
    end
    sleep 0.05
  end
  # others of its group
  t = now
  while now - t < 20 && !(left = `pgrep -g #{pid}`.split).empty? && !problems.include?("HANG")
    sleep 0.2
  end
  left = `pgrep -g #{pid}`.split
  unless left.empty?
    problems << "CHILDREN LEFT #{left.map { |p| File.read("/proc/#{p}/cmdline").tr("\0", " ") rescue p }}"
    File.write("/tmp/fuzz/left-#{version}-#{backend}-#{seed}.txt", left.map { |p| "== #{p}\n" + `cat /proc/#{p}/status | head -3; gdb -p #{p} -batch -ex 'thread apply all bt 40' 2>/dev/null` }.join)
    Process.kill(:KILL, -pid) rescue nil
  end
  done = true
  asker.join(5); cli.join(30)
  text = File.read(err).b
  ending = text[/ending=(\S*)/, 1].to_s
  problems << "STATUS #{status.inspect}" unless status.success? || %w[abort kill term].include?(ending) || problems.include?("HANG")
  problems << "SIGNAL #{status.inspect}" if status.signaled? && !(ending == "term" && status.termsig == 15) && !(ending == "kill" && status.termsig == 9) && !problems.include?("HANG")
  text.each_line { |l| problems << l.chomp[0, 900] if l =~ /WRONG|\[BUG\]|Assertion|fatal|Deadlock|deadlock|heddle:|(NoMethod|Type|Argument|IO|Name|Runtime|Index|Key|Frozen)Error|Errno/ && l !~ /of a report|of a task/ }
  text.each_line { |l| total["note:" + l.split.first] += 1; puts l[0, 400] if l =~ /^(LEFT|UNEVEN)/ }  if text =~ /^(LEFT|UNEVEN)/
  text[/^OPS (.*) STALLS/, 1].to_s.split.each { |p| k, v = p.split("="); total[k] += v.to_i }
  Dir.glob("#{dir}/trace-*.json").each do |path|
    next unless File.exist?("#{path}.done")
    total[:traces_checked] += 1
    begin
      events = JSON.parse(File.read(path))
      events.each { |e| problems << "trace #{e}" if e["ts"].to_f < 0 || (e["dur"] || 0) < 0 }
    rescue => e
      problems << "trace #{path} #{File.size(path)}: #{e.message[0, 200]}"
      FileUtils.cp(path, "/tmp/fuzz/bad-trace-#{seed}.json")
    end
  end
  # leftovers: the next process of this folder removes those of the dead
  system(env, "ruby", "-I#{tree}/lib", "-rheddle", "-e", "Heddle.insight; at_exit { }", out: "/dev/null", err: "/dev/null")
  socks = Dir.glob("#{dir}/heddle/*.sock")
  problems << "LEFTOVER #{socks}" unless socks.empty?
  cleaned = File.read(err).b
  puts "#{Time.now.strftime("%H:%M:%S")} #{version} #{backend} seed #{seed} #{(now - start).round(1)} s ending=#{ending} #{problems.empty? ? "ok" : "PROBLEMS #{problems.size}"}"
  problems.uniq.first(12).each { |p| puts "    #{p}" }
  $stdout.flush
  if problems.empty? then FileUtils.rm_rf(dir) else FileUtils.rm_f(Dir.glob("#{dir}/trace-*")); bad << seed; File.write("#{dir}/problems", problems.uniq.join("\n")) end
end
puts "SUM #{version} #{backend} asked=#{asked} answers=#{answers} anomalies=#{anomalies} bad=#{bad} #{total}"
