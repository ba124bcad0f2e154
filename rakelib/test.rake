# frozen_string_literal: true

desc "Run the tests on this Ruby; FILES=test/loop narrows, HEDDLE_BACKEND=uring|epoll|poll chooses the backend"
task test: :compile do
  ruby "test/support/driver.rb", *ENV.fetch("FILES", "test").split
end
