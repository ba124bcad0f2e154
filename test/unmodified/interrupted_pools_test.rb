# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"

# A limit of other pools, without Heddle: Thread#kill interrupts a thread inside the pool's own code, and the pool loses
# the place of a connection. Each program ends as soon as it has seen that.
class UnmodifiedInterruptedPoolsTest < UnmodifiedTestCase
  SECONDS = 40

  def test_connection_pool_loses_a_place
    require "connection_pool"
    assert_seen <<~RUBY
      require "connection_pool"
      seen do
        pool = ConnectionPool.new(size: 1, timeout: 0.05) { Object.new }
        killed { pool.with { nil } }
        pool.available == 0
      end
    RUBY
  end

  # Sequel uses its pool timed_queue on Ruby 3.2 and later.
  if RUBY_VERSION >= "3.2"
    def test_sequel_loses_a_place
      require "sequel"
      assert_seen <<~RUBY
        require "sequel"
        seen do
          db = Sequel.mock(max_connections: 1, pool_timeout: 0.05, keep_reference: false)
          killed { db.synchronize { nil } }
          db.synchronize { false }
        rescue Sequel::PoolTimeout
          true
        end
      RUBY
    end
  end

  private

  PREAMBLE = <<~RUBY
    def seen
      limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + #{SECONDS}
      until Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
        abort("Heddle is loaded") if defined?(Heddle::FiberPool)
        return puts("seen") if yield
      end
    end

    # Calls the block again and again in two threads, and kills them.
    def killed(&block)
      threads = Array.new(2) do
        Thread.new do
          loop do
            block.call
          rescue StandardError
            nil
          end
        end
      end
      sleep(rand * 0.002)
      threads.each(&:kill).each(&:join)
    end
  RUBY
  private_constant :PREAMBLE

  def assert_seen(program)
    output = IO.popen([RbConfig.ruby, "-W0", "-e", PREAMBLE + program], err: File::NULL, &:read)
    assert_equal "seen", output.lines.last&.chomp
  end
end
