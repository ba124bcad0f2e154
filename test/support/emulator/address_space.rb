# frozen_string_literal: true

pid = fork do
  Process.setrlimit(:AS, 256 << 20)
  exit!(("x" * (1 << 30)).empty?) # false
rescue NoMemoryError
  exit!(0)
end
puts Process.wait2(pid).last.success? ? "same" : "different"
