# frozen_string_literal: true

# The process of one cell. The job comes as JSON in the first argument, the answer goes as JSON to descriptor 3.
require "json"
require "heddle/lab/workload"

output = IO.for_fd(3)
output.close_on_exec = true
output.sync = true
_, hard = Process.getrlimit(:NOFILE)
Process.setrlimit(:NOFILE, hard, hard)

answer =
  begin
    Heddle::Lab::Workload.run(JSON.parse(ARGV.fetch(0)))
  rescue Exception => error # rubocop:disable Lint/RescueException -- whatever ended the work is what the row has to say
    {"error" => "#{error.class}: #{error.message.lines.first&.strip}", "backtrace" => error.backtrace&.first(5)}
  end
output.write(JSON.generate(answer))
output.close
# What the work left waiting is no longer of interest, and a hanging at_exit is not either.
exit!(0)
