require "heddle"
stop = false
ths = 2.times.map { Thread.new { Heddle.run { 4.times { |i| Heddle.spawn { until stop; sleep 0.0001; end } } } } }
sleep 0.1
t = Process.clock_gettime(Process::CLOCK_MONOTONIC)
n = 0
while Process.clock_gettime(Process::CLOCK_MONOTONIC) - t < 15
  Heddle::StallWatch.send(:limit=, 0.05)
  Heddle::Scheduler.open.each { |s, th| Heddle::StallWatch.send(:watch_loop, s, th.native_thread_id.to_i) }
  Thread.pass
  Heddle::StallWatch.send(:limit=, nil)
  n += 1
end
stop = true
ths.each(&:join)
p n
