# frozen_string_literal: true

# Seconds until a query is interrupted: its request is under way by then.
INTERRUPTED_AFTER = 0.1

# How a query is interrupted, for tests of its connection's state afterwards. Each way gets the test and the query as
# a Proc, and returns once the query was interrupted.
WAYS_TO_INTERRUPT = {
  "a deadline in a task" => lambda do |test, query|
    Heddle.run { test.assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(INTERRUPTED_AFTER, &query) } }
  end,
  "a deadline in a thread" => lambda do |test, query|
    test.assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(INTERRUPTED_AFTER, &query) }
  end,
  "Timeout in a task" => lambda do |test, query|
    Heddle.run { test.assert_raises(Timeout::Error) { Timeout.timeout(INTERRUPTED_AFTER, &query) } }
  end,
  "Timeout in a thread" => lambda do |test, query|
    test.assert_raises(Timeout::Error) { Timeout.timeout(INTERRUPTED_AFTER, &query) }
  end,
  "a cancel" => lambda do |test, query|
    Heddle.run do
      task = Heddle.spawn(&query)
      sleep INTERRUPTED_AFTER
      task.cancel
      test.assert_raises(Heddle::TaskCancelled) { task.value }
    end
  end,
  "a raise in a thread" => lambda do |test, query|
    thread = Thread.new(&query)
    thread.report_on_exception = false
    sleep INTERRUPTED_AFTER
    thread.raise(IndexError, "interrupted")
    test.assert_raises(IndexError, *test.wrapped) { thread.value }
  end,
  "the end of a thread" => lambda do |_test, query|
    thread = Thread.new(&query)
    sleep INTERRUPTED_AFTER
    thread.kill.join
  end
}.freeze
