$stdout.sync = true
require "socket"; require "json"
path = Heddle.insight
$stderr.reopen(File::NULL)
Heddle.run do
  10.times { Heddle.spawn(name: "failed") { sleep 0.01; raise "an error that is reported" } }
  sleep 0.1
  c = UNIXSocket.new(path); c.puts "ps wait=9000"
  puts c.read.lines.map { |l| JSON.parse(l) }.select { |r| r["task"] }.map(&:to_s).first(4)
  exit!
end
