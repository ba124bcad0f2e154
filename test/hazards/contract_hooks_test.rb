# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on also: %i[yjit]

# Contract test: hooks that only newer Rubies call, called here as those Rubies would.
class ContractHooksTest < Minitest::Test
  include LoopHelpers

  # Ruby >= 4.0, after it has handled a signal.
  def test_contract_yield_lets_the_others_run_once
    Heddle.run do
      order = []
      tasks = Array.new(3) { |index| Heddle.spawn { sleep(0) && order << index } }
      Fiber.scheduler.yield
      order << :back
      tasks.each(&:wait)
      assert_equal [0, 1, 2, :back], order
    end
  end

  def test_contract_yield_without_other_fibers
    Heddle.run { assert Fiber.scheduler.yield }
  end

  # Ruby >= 4.0, from IO#close for each fiber that waits for the IO, in the closing thread.
  def test_contract_fiber_interrupt
    with_pair do |reader, _|
      Heddle.run do
        fiber = nil
        task = Heddle.spawn do
          fiber = Fiber.current
          assert_raises(IOError) { reader.wait_readable(30) }.message
        end
        assert Fiber.scheduler.fiber_interrupt(fiber, IOError.new("stream closed in another thread"))
        assert_equal "stream closed in another thread", task.value
      end
    end
  end

  def test_contract_fiber_interrupt_from_another_thread_of_a_loop_that_sleeps
    Heddle.run do
      scheduler, fiber = Fiber.scheduler, nil
      task = Heddle.spawn { (fiber = Fiber.current) && assert_raises(IOError) { sleep } }
      Thread.new { sleep(0.005) && scheduler.fiber_interrupt(fiber, IOError.new("closed")) }
      assert task.wait(5), "the loop was not woken"
    end
  end

  def test_contract_fiber_interrupt_of_a_wait_that_has_completed
    with_pair do |reader, writer|
      Heddle.run do
        fiber = nil
        task =
          Heddle.spawn { (fiber = Fiber.current) && Thread::Queue.new.then { |queue| Fiber.scheduler.block(queue) } }
        Fiber.scheduler.unblock(nil, fiber)
        Fiber.scheduler.fiber_interrupt(fiber, IOError.new("late"))
        assert_equal true, task.value # what was handed over is not lost
        writer.write("x")
        assert_equal "x", reader.readpartial(1)
      end
    end
  end

  def test_contract_fiber_interrupt_of_a_fiber_that_does_not_wait
    Heddle.run do
      ended = Fiber.schedule {}
      idle = nil
      Heddle.spawn { idle = Fiber.current }
      assert_equal [false] * 4, [ended, idle, Fiber.current, Fiber.new {}]
        .map { |fiber| Fiber.scheduler.fiber_interrupt(fiber, IOError.new("x")) }
      assert_equal :works, Heddle.spawn { sleep(0) && :works }.value
    end
  end

  # The hook of Ruby >= 3.4 exists only where a program asks for it.
  def test_contract_blocking_operation_wait_is_off
    assert_child("exit!(Heddle::Scheduler.method_defined?(:blocking_operation_wait) ? 1 : 0)")
  end

  def test_contract_blocking_operation_wait
    out = assert_child(<<~RUBY)
      require "heddle/blocking_operations"
      Heddle.run do
        scheduler = Fiber.scheduler
        main = Thread.current
        threads = []
        ticks = 0
        ticker = Heddle.spawn { loop { sleep(0.002); ticks += 1 } }
        operations = Array.new(10) { |index|
          -> { threads << Thread.current; Fiber.new(blocking: true) { sleep(0.02) }.resume; index }
        }
        puts operations.map { |operation| Heddle.spawn { scheduler.blocking_operation_wait(operation) } }
          .map(&:value).inspect
        puts threads.uniq.size, threads.include?(main), ticks > 5
        begin
          scheduler.blocking_operation_wait(-> { raise IOError, "inside" })
        rescue IOError => error
          puts error.message
        end
        pid = fork { exit!(Heddle.run { Fiber.scheduler.blocking_operation_wait(-> { 5 }) }) }
        puts Process.wait2(pid).last.exitstatus
        ticker.cancel
      end
    RUBY
    assert_equal ["[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", "4", "false", "true", "inside", "5"], out.lines(chomp: true)
  end

  # Ruby's operation lies on the stack of the fiber that asked for it.
  def test_contract_blocking_operation_wait_outlives_a_cancel
    out = assert_child(<<~RUBY)
      require "heddle/blocking_operations"
      Heddle.run do
        scheduler, release, order = Fiber.scheduler, Thread::Queue.new, Thread::Queue.new
        operation = lambda do
          order << :began
          begin
            release.pop
          rescue Exception
            retry
          end
          order << :ended
        end
        task = Heddle.spawn do
          scheduler.blocking_operation_wait(operation)
        ensure
          order << :left
        end
        order.pop
        task.cancel
        sleep(0.05)
        release << 1
        task.wait
        puts order.pop, order.pop, task.status
      end
    RUBY
    assert_equal %w[ended left cancelled], out.split
  end

  def test_blocking_operations_by_ruby
    skip "Ruby asks for it since 3.4" unless ruby_at_least?("3.4")
    out = assert_child(<<~RUBY)
      require "heddle/blocking_operations"
      require "zlib"
      calls = 0
      Heddle::Scheduler.prepend(Module.new {
        define_method(:blocking_operation_wait) { |operation| (calls += 1) && super(operation) }
      })
      text = "heddle" * 200_000
      puts Heddle.run { Zlib.inflate(Zlib.deflate(text)) == text }, calls > 0
    RUBY
    assert_equal %w[true true], out.split
  end

  # Ruby >= 4.1 passes a proxy, whose raise reaches the fiber while its operation lasts, and past Heddle's Fiber#raise.
  def test_contract_fiber_interrupt_of_a_proxy
    out = assert_child(<<~RUBY, heddle: false)
      require "socket"
      RAISE = Fiber.instance_method(:raise)
      require "heddle"
      require "heddle/ruby_fixes/interrupt_proxy"
      Proxy = Struct.new(:fiber, :active) do
        alias_method :alive?, :active
        def raise(error) = active ? RAISE.bind_call(fiber, error) : nil
      end
      near, far = UNIXSocket.pair
      wait = lambda do
        $proxies << proxy = Proxy.new(Fiber.current, true)
        near.wait_readable(30)
      rescue IOError => error
        error.message
      ensure
        proxy.active = false
      end
      $proxies = Thread::Queue.new
      Heddle.run do
        scheduler = Fiber.scheduler
        # By a fiber of the same thread, which continues.
        task = Heddle.spawn(&wait)
        scheduler.fiber_interrupt($proxies.pop, IOError.new("closed here"))
        puts task.value
        # From another thread.
        task = Heddle.spawn(&wait)
        proxy = $proxies.pop
        Thread.new { scheduler.fiber_interrupt(proxy, IOError.new("closed elsewhere")) }.join
        puts task.value
        # Too late: the operation is over, and nobody is interrupted.
        scheduler.fiber_interrupt(proxy, IOError.new("late"))
        Thread.new { scheduler.fiber_interrupt(proxy, IOError.new("late")) }.join
        puts Heddle.spawn { sleep(0.01) && "not interrupted" }.value
      end
      puts "ended"
    RUBY
    assert_equal ["closed here", "closed elsewhere", "not interrupted", "ended"], out.lines.map(&:chomp)
  end

  # Ruby >= 4.1 calls these where a scheduler has them, and works as before where it does not: Heddle's own methods of
  # sockets do the work.
  def test_contract_hooks_of_sockets_are_left_to_ruby
    hooks = %i[socket_recv socket_send socket_connect socket_accept]
    assert_empty hooks.select { |hook| Heddle::Scheduler.method_defined?(hook) }
  end

  # Ruby >= 4.1 warns of an alias whose original is a prepended module's method, and will take the class's own later.
  def test_contract_no_alias_is_of_a_prepended_method
    out = assert_child(<<~'RUBY', heddle: false)
      Module.prepend(Module.new do
        def alias_method(to, from)
          owner = instance_method(from).owner
          puts "#{self}##{from}" if ancestors.take_while { |ancestor| !ancestor.equal?(self) }.include?(owner)
          super
        end
      end)
      %w[heddle heddle/net_http heddle/timeout heddle/memcached heddle/db heddle/neverblock].each do |name|
        require name
      end
      3.times { Heddle::NetHTTP.enable && Heddle::NetHTTP.disable }
      Class.new { prepend(Module.new { def shown = nil }) && alias_method(:other, :shown) }
    RUBY
    assert_match(/\A#<Class:\S+>#shown\n\z/, out)
  end

  # Ruby < 4.0 calls neither; heddle/ruby_fixes calls them instead.
  def test_contract_every_hook_is_there
    hooks = %i[close scheduler_close block unblock kernel_sleep io_wait process_wait fiber timeout_after address_resolve
      io_read io_write io_pread io_pwrite io_select yield fiber_interrupt]
    assert_empty hooks.reject { |hook| Heddle::Scheduler.method_defined?(hook) }
  end
end
