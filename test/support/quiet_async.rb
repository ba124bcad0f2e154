# frozen_string_literal: true

require "support/async_loops"

# For tests of Async: its log is off while each runs, and no scheduler is left afterwards.
module QuietAsync
  ROOT = File.expand_path("../..", __dir__)
  # A program of its own, to which `-e` and code are added.
  RUBY = [RbConfig.ruby, "-W0", "-I#{ROOT}/lib", "-I#{ROOT}/test", "-rbundler/setup"].freeze

  def setup
    super
    @level = Console.logger.level
    Console.logger.off!
  end

  def teardown
    Console.logger.level = @level
    assert_nil Fiber.scheduler
    super
  end

  private

  # Runs the block as a task of Async's on each of Heddle's loops.
  def on_heddle(&block) = AsyncLoops::HEDDLE.each { |loop| AsyncLoops.run(loop, &block) }
end
