require "heddle"
r, w = IO.pipe
w.write_nonblock("x" * 65536) rescue nil
begin; loop { w.write_nonblock("x"*4096) }; rescue IO::WaitWritable; end
Heddle.insight
require "json"
path = Heddle.insight
old = $stderr
$stderr = w
Thread.report_on_exception = true
keep = []
Heddle.run do
  5.times { |i| keep << Heddle.spawn(name: "bad#{i}") { sleep 0.01; raise "boom #{i}" } rescue nil }
  sleep 0.1
  Thread.new { sleep 0.2; loop { r.read_nonblock(65536, exception: false); sleep 0.01 } }
  sleep 1
  ask = lambda do
  s = Thread.new { `#{RbConfig.ruby} -rsocket -e 's=UNIXSocket.new(ARGV[0]); s.write("ps\n"); puts s.read' #{path}` }.value
  s.lines.map { JSON.parse(_1) }.select { _1["task"] || (_1["loop"]) }.each { old.puts _1.inspect }
  end
  ask.call
rescue => e
  old.puts e.inspect
end
