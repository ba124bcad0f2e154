# frozen_string_literal: true

# Each test runs in a task.
require "heddle"
require "minitest"

Minitest::Test.prepend(Module.new { def run = Heddle.run { Heddle.spawn { super() }.value } })
