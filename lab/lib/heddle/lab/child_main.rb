# frozen_string_literal: true

# The process of one cell. The first argument is the job as JSON; the answer goes as JSON to descriptor 3.
require "json"
require "heddle/lab/workload"

output = IO.for_fd(3)
output.close_on_exec = true
_, hard = Process.getrlimit(:NOFILE)
Process.setrlimit(:NOFILE, hard, hard)

# Delivering an answer ends the process at once: fibers that still wait do not matter any more, and might wait for ever.
# A separate thread writes the answer, so that the measured scheduler takes no part in it. The thread is made at the
# start, because a process that has run out of fibers cannot make a thread either.
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
rescue Exception => error # rubocop:disable Lint/RescueException -- the row reports whatever ended the work
  deliver.call(Heddle::Lab::Workload.failure(error))
end
