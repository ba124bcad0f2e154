# frozen_string_literal: true

# The process of one cell. The job comes as JSON in the first argument, the answer goes as JSON to descriptor 3.
require "json"
require "heddle/lab/workload"

output = IO.for_fd(3)
output.close_on_exec = true
_, hard = Process.getrlimit(:NOFILE)
Process.setrlimit(:NOFILE, hard, hard)

# Delivering an answer ends the process at once: what the work left waiting is of no interest any more, and might wait
# for ever. A thread of its own writes it, so that the scheduler that was measured has no part in it; the thread is
# there from the start, because where fibers run out nothing more can be made.
answers = Thread::Queue.new
Thread.new do
  output.syswrite(answers.pop)
  exit!(0)
end
deliver = lambda do |answer|
  answers << JSON.generate(answer)
  sleep
end

begin
  deliver.call(Heddle::Lab::Workload.run(JSON.parse(ARGV.fetch(0)), deliver))
rescue Exception => error # rubocop:disable Lint/RescueException -- whatever ended the work is what the row has to say
  deliver.call(Heddle::Lab::Workload.failure(error))
end
