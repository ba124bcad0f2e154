# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/scripted_mysql"

# A task that has a pool's connection, or waits for one, is interrupted by a deadline or a cancel while another thread
# holds the pool's lock: the place goes to others all the same.
class InterruptedPoolsTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  SPAN = 0.2 # seconds until the interrupt
  HELD = 0.6 # … for which the lock is held, from before the interrupt on

  def setup
    @server = ScriptedMySQL.new { |peer| peer.welcome && loop { peer.read } }
    @pool = Heddle::DB::Pool.new(@server.url, size: 1, timeout: 10)
    @pool.with(&:itself)
  end

  def teardown
    @pool.close
    @server.close
  end

  # How the wait inside of the block is ended.
  IN_TASKS = {
    "deadline" => ->(work) { Heddle.run { Heddle.deadline(SPAN, &work) } },
    "cancel" => lambda do |work|
      Heddle.run do
        task = Heddle.spawn(&work)
        sleep SPAN
        task.cancel.value
      end
    end
  }.freeze
  WAYS = {
    **IN_TASKS,
    "deadline_in_a_thread" => ->(work) { Heddle.deadline(SPAN, &work) }
  }.freeze

  WAYS.each do |name, way|
    define_method("test_a_return_to_the_pool_after_a_#{name}") do
      using = Thread::Queue.new
      interrupted(way, -> { using.pop }) { @pool.with { using.push(true) && sleep } }
      assert_equal({connections: 1, free: 1, waiting: 0}, @pool.stats)
      assert_usable
    end

    define_method("test_a_wait_for_a_connection_until_a_#{name}") do
      waiting = @pool.instance_variable_get(:@waiting)
      @pool.with do
        interrupted(way, -> { Thread.pass while waiting.empty? }) { @pool.with { flunk } }
        assert_equal 0, @pool.stats[:waiting]
      end
      assert_usable
    end
  end

  # A thread that is struck while it waits for a file that another thread loads leaves the next one waiting for ever.
  def test_connecting_loads_no_more_files
    out = assert_child(<<~RUBY, gems: true)
      require "heddle/db"
      Heddle::DB::Pool.new("mysql://127.0.0.1:1/base")
      puts Heddle::DB.constants.select { |name| Heddle::DB.autoload?(name) }
    RUBY
    assert_empty out
  end

  private

  # Another thread takes the lock once +ready+ has returned, and holds it when the block is interrupted.
  def interrupted(way, ready, &work)
    lock = @pool.instance_variable_get(:@lock)
    holder = in_background do
      ready.call
      lock.synchronize { sleep(HELD) }
    end
    error = assert_raises(Heddle::DeadlineExceeded, Heddle::TaskCancelled) { in_thread { way.call(work) } }
    refute_kind_of Heddle::DB::PoolTimeout, error
    holder.value
  end

  def assert_usable = assert_equal(:used, Heddle.deadline(5) { @pool.with { :used } })
end
