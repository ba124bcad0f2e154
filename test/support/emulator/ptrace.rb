# frozen_string_literal: true

require_relative "../system_calls"

pid = fork do
  SystemCalls.ask_to_be_traced
  exit!(0)
rescue SystemCallError
  exit!(1)
end
puts Process.wait2(pid).last.success? ? "same" : "different"
