# frozen_string_literal: true

require "test_helper"
require "shared/deadlines"

runs_on backends: :one

class DeadlineInThreadsTest < Minitest::Test
  include Shared::Deadlines

  mode :thread

  def inside(&block) = in_thread(&block)
end

class DeadlineInTheMainThreadTest < Minitest::Test
  include Shared::Deadlines

  mode :blocking

  def inside = yield
end
