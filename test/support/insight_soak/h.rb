$stdout.sync = true
require "heddle"
require "socket"
Heddle.insight
module Heddle::Insight
  class << self
    prepend(Module.new { def start_helper = (p(:window) if Process.pid != $pid; $ask&.call(Dir["/tmp/heddle-0/#{Process.pid}*.sock"].first) if Process.pid != $pid; super) })
  end
end
$pid = Process.pid
$ask = ->(path) { s = UNIXSocket.new(path); s.write("ps wait=10\n"); a = s.read; puts "#{a.lines.grep(/"task":/).size} tasks, #{a.lines.grep(/"loop":/).size} loops shown in child" }
Heddle.run do
  20.times { Heddle.spawn { sleep } }
  sleep 0.05
  Process.wait(fork { exit! })
  exit!
end
