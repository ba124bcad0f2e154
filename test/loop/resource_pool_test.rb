# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/both_modes"

# Heddle::ResourcePool, in tasks and in plain threads. test/shared/db/pools.rb has more, for pools of connections.
module ResourcePoolSuite
  include LoopHelpers

  def setup
    @made = 0
    @closed = []
  end

  def test_a_resource_is_used_again
    pool = pool(size: 2)
    assert_equal [1, 1], Array.new(2) { pool.with(&:itself) }
    assert_equal([1, 2], pool.with { |one| [one, pool.with(&:itself)] })
    assert_equal({open: 2, idle: 2, waiting: 0}, pool.stats)
    assert_equal 1, pool.with(&:itself) # the one used last
    assert_equal "#<Heddle::ResourcePool 2 of 2, 2 free, 0 waiting>", pool.inspect
  end

  def test_bad_values
    assert_raises(ArgumentError) { Heddle::ResourcePool.new }
    assert_raises(ArgumentError) { pool.with }
    {size: [0, 1.5], min: [-1, 6, nil], timeout: ["5", -1], idle: [-1], max_lifetime: [-1]}.each do |name, values|
      values.each { |value| assert_raises(TypeError, ArgumentError) { pool(name => value) } }
    end
  end

  def test_nobody_gets_one_in_time
    in_host do
      pool = pool(size: 1, timeout: 0.05)
      pool.with do
        error = assert_raises(Heddle::PoolTimeout) { pool.with { flunk } }
        assert_includes error.message, "size:"
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.01) { pool.with { flunk } } }
      end
      assert_equal({open: 1, idle: 1, waiting: 0}, pool.stats)
    end
  end

  def test_one_that_cannot_be_made
    pool = Heddle::ResourcePool.new(size: 1) { raise IOError, "no server" }
    2.times { assert_raises(IOError) { pool.with { flunk } } }
    assert_equal({open: 0, idle: 0, waiting: 0}, pool.stats)
  end

  def test_one_that_has_died_is_replaced
    dead = []
    pool = pool(size: 1, check: ->(one) { !dead.include?(one) })
    assert_equal 1, pool.with { |one| dead << one && one }
    assert_equal 2, pool.with(&:itself)
    assert_equal [1], @closed
  end

  def test_one_that_is_not_to_be_used_again
    pool = pool(size: 1, reset: ->(one) { one != 1 })
    assert_raises(IOError) { pool.with { raise IOError } }
    assert_equal 2, pool.with { |one| pool.discard(one) || one }
    assert_equal [3, 3], Array.new(2) { pool.with(&:itself) }
    assert_equal [1, 2], @closed
  end

  def test_one_that_is_discarded_twice_may_be_made_again
    pool = Heddle::ResourcePool.new(size: 1, close: ->(one) { @closed << one }) { :one }
    pool.with { |one| 2.times { pool.discard(one) } }
    2.times { pool.with { 1 } }
    assert_equal [[:one], {open: 1, idle: 1, waiting: 0}], [@closed, pool.stats]
  end

  def test_an_error_of_a_hook_frees_the_place
    pool = pool(size: 1, reset: ->(_) { raise IOError, "reset" }, close: ->(_) { raise IOError, "close" })
    2.times { assert_raises(IOError) { pool.with { 1 } } }
    assert_equal({open: 0, idle: 0, waiting: 0}, pool.stats)
  end

  # Ruby crashes when C code raises on what a `rescue` of another hook has cleared.
  def test_what_a_hook_raises_outlasts_a_rescue_in_the_next
    reset = nil
    pool = Heddle::ResourcePool.new(reset: ->(_) { reset.call }, close: method(:close_with_rescue)) { @made += 1 }
    reset = -> { raise IOError, "reset" }
    assert_equal "reset", assert_raises(IOError) { pool.with { 1 } }.message
    reset = -> { throw :out, 2 }
    assert_equal 2, catch(:out) { pool.with { 1 } }
    reset = -> { Thread.current.kill }
    thread = Thread.new do
      pool.with { 1 }
    ensure
      @closed << :ensured
    end
    assert_nil thread.value
    assert_equal [[1, 2, 3, :ensured], {open: 0, idle: 0, waiting: 0}], [@closed, pool.stats]
  end

  def test_the_first_of_many_that_cannot_be_closed
    close = ->(one) { (one == 3) ? raise(IOError) : close_with_rescue(one) }
    pool = Heddle::ResourcePool.new(close: close) { @made += 1 }
    pool.with { pool.with { pool.with { 1 } } }
    assert_raises(IOError) { pool.clear }
    assert_equal [2, 1], @closed
  end

  # Otherwise the next caller would get the same one first, again and again.
  def test_one_whose_check_fails_or_is_interrupted_is_not_used_again
    checks = {IOError => [10, -> { raise IOError }], Heddle::DeadlineExceeded => [0.05, -> { sleep }]}
    checks.each do |error, (seconds, check)|
      setup
      pool = pool(size: 2, check: ->(one) { one != 1 || check.call })
      assert_equal 1, pool.with(&:itself)
      assert_raises(error) { Heddle.deadline(seconds) { pool.with { flunk } } }
      assert_equal [1], @closed
      assert_equal [2, {open: 1, idle: 1, waiting: 0}], [pool.with(&:itself), pool.stats]
    end
  end

  def test_one_that_was_idle_or_lived_for_too_long
    {idle: 0.05, max_lifetime: 0.05}.each do |name, seconds|
      setup
      pool = pool(**{name => seconds})
      assert_equal 1, pool.with(&:itself)
      sleep(0.1)
      assert_equal [2, [1]], [pool.with(&:itself), @closed]
    end
    setup
    pool = pool(size: 2, max_lifetime: 0.05)
    pool.with { pool.with { 1 } }
    sleep(0.1)
    assert_equal [3, [1, 2]], [pool.with(&:itself), @closed.sort], "also the one that is not lent"
    setup
    pool = pool(size: 2, idle: 0.05, min: 1)
    pool.with { pool.with { 1 } }
    sleep(0.1)
    assert_equal [1, [2]], [pool.with(&:itself), @closed]
  end

  def test_clear_and_close
    in_host do
      pool = pool(size: 2)
      pool.with do
        pool.with { 1 }
        assert_nil pool.clear
        assert_equal [2], @closed
      end
      assert_equal [2, 1], @closed
      pool.with { pool.close }
      assert_equal [2, 1, 3], @closed
      assert_predicate pool, :closed?
      assert_raises(Heddle::PoolClosed) { pool.with { flunk } }
    end
  end

  def test_an_enumerator_that_was_dropped_gives_its_resource_back
    pool = pool(size: 1)
    # The GC takes what an earlier call has left on a stack for a reference.
    in_thread { Enumerator.new { |rows| pool.with { |one| rows << one << 2 } }.next }
    wait_until(what: "the resource") { GC.start.nil? && pool.stats[:idle] == 1 }
    assert_equal [1, 2], Enumerator.new { |rows| pool.with { |one| rows << one << 2 } }.to_a
  end

  def test_a_child_of_fork_has_a_pool_without_resources
    pool = pool(size: 2, after_fork: ->(one) { @closed << -one })
    pool.with { 1 }
    pid = pool.with { pool.with { 1 } && fork }
    exit!([pool.stats[:open], @closed.sort, pool.with(&:itself), @closed.sort] == [0, [-2, -1], 3, [-2, -1]]) unless pid
    assert_predicate Process.wait2(pid).last, :success?
    assert_equal({open: 2, idle: 2, waiting: 0}, pool.stats)
  end

  # A trap handler that forks, say. The child may use the pool before the hook goes on.
  def test_a_fork_in_a_hook
    {reset: ->(pool) { pool.with { 1 } }, close: ->(pool) { pool.with { |one| pool.discard(one) } }}.each do |name, use|
      setup
      child = pool = nil
      hook = lambda do |_|
        next true unless @forks

        @forks = false
        child = fork || (pool.with(&:itself) && :child)
      end
      pool = Heddle::ResourcePool.new(:size => 3, name => hook) { @made += 1 }
      pool.with { pool.with { 1 } }
      @forks = true
      use.call(pool)
      if child == :child
        pool.with { pool.with { pool.with { 1 } } }
        exit!(pool.stats == {open: 3, idle: 3, waiting: 0})
      end
      assert_predicate Process.wait2(child).last, :success?
    end
  end

  # The parent goes on to use the resource.
  def test_a_child_of_a_fork_in_a_check_or_a_make_gets_a_resource_of_its_own
    {check: [1, 2, [1]], make: [2, 3, [2]]}.each do |name, (of_parent, of_child, forgotten)|
      setup
      @forks = child = nil
      hook = lambda do |called|
        return true unless @forks == called

        @forks = nil
        child = fork || :child
        true
      end
      check = ->(_) { hook.call(:check) && name == :check }
      pool = Heddle::ResourcePool.new(size: 1, check: check, after_fork: ->(one) { @closed << one }) do
        (@made += 1).tap { hook.call(:make) }
      end
      pool.with { 1 }
      @forks = name
      used = pool.with(&:itself)
      exit!([used, @closed, pool.stats] == [of_child, forgotten, {open: 1, idle: 1, waiting: 0}]) if child == :child
      assert_predicate Process.wait2(child).last, :success?
      assert_equal [of_parent, {open: 1, idle: 1, waiting: 0}], [used, pool.stats]
    end
  end

  # A close may send something, on a connection that the parent shares.
  def test_a_child_of_a_fork_in_a_close_closes_no_other
    {idle: ->(pool) { pool.with { 1 } }, clear: :clear.to_proc}.each do |name, use|
      setup
      child = nil
      close = ->(one) { (@closed << one).one? && (child = fork || :child) }
      pool = Heddle::ResourcePool.new(size: 2, idle: (name == :idle) ? 0.05 : 300, close: close,
        after_fork: ->(one) { @closed << -one }) { @made += 1 }
      pool.with { pool.with { 1 } }
      sleep(0.1) if name == :idle
      use.call(pool)
      exit!(@closed == [2, -1]) if child == :child
      assert_predicate Process.wait2(child).last, :success?
      assert_equal [1, 2], @closed.sort
    end
  end

  private

  def close_with_rescue(one)
    Integer("none")
  rescue ArgumentError
    @closed << one
  end

  def pool(**options)
    Heddle::ResourcePool.new(close: ->(one) { @closed << one }, **options) { @made += 1 }
  end
end

BothModes.define("ResourcePool", ResourcePoolSuite)
