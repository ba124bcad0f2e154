require "socket"; require "tmpdir"
ENV["XDG_RUNTIME_DIR"] = Dir.mktmpdir("hf")
path = Heddle.insight
w = Heddle.watch_stalls(0.01) { |s| s.to_s }
n = 0
til = Process.clock_gettime(Process::CLOCK_MONOTONIC) + Float(ARGV[0])
Heddle.trace("#{ENV["XDG_RUNTIME_DIR"]}/t.json") do
  Heddle.run do
    while Process.clock_gettime(Process::CLOCK_MONOTONIC) < til
      c = UNIXSocket.new(path)
      GC.stress = true
      case n % 4
      when 0 then Heddle.metrics
      when 1 then Heddle.spawn(name: "x") { sleep 0.001 }.value
      when 2 then c.write("ps\n"); c.wait_readable(1)
      when 3 then Heddle::Pools.all
      end
      GC.stress = false
      c.close
      n += 1
    end
  end
end
w.stop
p n
