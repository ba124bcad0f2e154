# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/refusals"

runs_on rubies: :ends, backends: :one

# Each allocation of the extension fails once, in turn: what was begun is undone, the caller gets NoMemoryError, and
# the loop continues.
class OutOfMemoryTest < Minitest::Test
  include LoopHelpers
  include Refusals

  mode :fiber

  # The work during which an allocation fails; in each the loop's tables grow. +extra+ is work that must succeed
  # afterwards in the same run, on the same loop.
  SITUATIONS = {
    "many tasks that sleep" => "Array.new(200) { Heddle.spawn { sleep(0.001) } }.each(&:wait)",
    "tasks on worker fibers that are used again" => <<~RUBY,
      3.times { Array.new(70) { Heddle.spawn { sleep(0.001) } }.each(&:wait) }
    RUBY
    "starts from nested fibers, which are indexed" => <<~RUBY,
      starts = -> { Fiber.new { 2.times { Heddle.spawn { sleep(0.001) }.wait } }.resume }
      Array.new(40) { Heddle.spawn(&starts) }.each(&:wait)
    RUBY
    "many descriptors" => <<~RUBY,
      pairs = Array.new(90) { IO.pipe }
      tasks = pairs.map { |reader, _| Heddle.spawn { reader.wait_readable(0.05) } }
      pairs.each { |_, writer| writer.write("x") }
      tasks.each(&:wait)
    RUBY
    "IO.select" => <<~RUBY,
      pairs = Array.new(150) { IO.pipe }
      pairs.last.last.write("x")
      Heddle.spawn { IO.select(pairs.map(&:first), nil, nil, 0.05) }.wait
    RUBY
    "deadlines" => <<~RUBY,
      limited = lambda do
        Heddle.deadline(0.001) { sleep }
      rescue Heddle::DeadlineExceeded
        nil
      end
      Array.new(90) { Heddle.spawn(&limited) }.each(&:wait)
    RUBY
    "a pool" => <<~RUBY,
      pool = Heddle::FiberPool.new(80)
      200.times { pool.spawn { sleep(0.001) } }
      pool.close
    RUBY
    "wake-ups that come early" => <<~RUBY,
      fibers = Array.new(70) { Fiber.new {} }
      fibers.each { |fiber| Fiber.scheduler.unblock(nil, fiber) }
      Array.new(70) { Heddle.spawn { Thread::Queue.new.tap { |queue| Thread.new { queue << 1 } }.pop } }.each(&:wait)
    RUBY
    "a run in a run" => "Heddle.run { Array.new(70) { Heddle.spawn { sleep(0.001) } } }"
  }.freeze

  SITUATIONS.each do |name, code|
    define_method("test_#{name.tr(" ,", "__")}") do
      out = run_failing(situation(code))
      assert_match(/\A\d+ failures\n\z/, out)
      assert_operator out.to_i, :>, 0, "no allocation was made to fail"
    end
  end

  # A nested fiber that starts a task is indexed: then the index has to grow.
  def test_an_idle_worker_fiber_is_not_lost
    assert_equal "true\n", run_failing(<<~RUBY)
      failures = 0
      at_once = lambda do |count|
        gate = Thread::Queue.new
        tasks = Array.new(count) { Heddle.spawn { gate.pop } }
        gate.close
        tasks.each(&:wait)
      end
      1.step do |n|
        done = Heddle.run do
          pairs = Array.new(32) { IO.pipe }
          at_once.call(50)
          waiters = pairs.map { |reader, _| Heddle.spawn { reader.wait_readable } }
          fail_allocation.call(n)
          begin
            Fiber.new { Heddle.spawn {} }.resume
          rescue NoMemoryError
            failures += 1
          end
          done = !allocations_left.call.zero?
          fail_allocation.call(0)
          before = Heddle.stats[:reused]
          at_once.call(18)
          stop.call "failure \#{n} lost a worker fiber" unless Heddle.stats[:reused] - before == 18
          pairs.each { |_, writer| writer.write("x") }
          waiters.each(&:wait)
          pairs.flatten.each(&:close)
          done
        end
        break if done
      end
      puts failures > 0
    RUBY
  end

  def test_a_loop_that_cannot_be_made_leaves_no_descriptor
    assert_equal "true\n", run_failing(<<~RUBY)
      Heddle.run {}
      open_ones = -> { Dir.children("/proc/self/fd").size }
      before = open_ones.call
      failures = 0
      1.step do |n|
        fail_allocation.call(n)
        begin
          Heddle.run {}
        rescue NoMemoryError
          failures += 1
        end
        done = !allocations_left.call.zero?
        fail_allocation.call(0)
        stop.call "failure \#{n} left a descriptor open" unless open_ones.call == before
        break if done
      end
      puts failures > 0
    RUBY
  end

  # The second value of the row has no room. What comes next must not stand behind the first one.
  def test_a_row_of_a_copy_that_has_no_room
    assert_equal "true\n", run_failing(<<~RUBY)
      $:.unshift(*#{[File.expand_path("..", __dir__), *gem_paths("bigdecimal")].inspect})
      require "heddle/db/postgresql"
      require "support/scripted_postgresql"
      messages = ScriptedPostgreSQL.method(:message)
      sent = Thread::Queue.new
      server = ScriptedPostgreSQL.new do |peer|
        peer.startup
        peer.raw(ScriptedPostgreSQL.welcome)
        peer.request
        peer.raw(messages["G", [0, 2, 0, 0].pack("Cn3")])
        data = +""
        while (type, bytes = peer.read) && type == "d"
          data << bytes
        end
        sent << data
        peer.raw(messages["C", "COPY 2\\0"] + ScriptedPostgreSQL.ready)
        peer.read
      end
      failures = 0
      row = ["first", "x" * 4000]
      1.step do |n|
        db = Heddle::DB.connect(server.url, sslmode: "disable")
        added = done = nil
        db.copy_in("copy t from stdin") do |copy|
          fail_allocation.call(n)
          begin
            added = copy << row
          rescue NoMemoryError
            failures += 1
          end
          done = !allocations_left.call.zero?
          fail_allocation.call(0)
          copy << %w[whole row]
        end
        db.close
        lines = [(row.join("\t") if added), "whole\trow"].compact
        data = sent.pop
        stop.call "failure \#{n} sent \#{data[0, 100].inspect}" unless data.lines(chomp: true) == lines
        break if done
      end
      puts failures > 0
    RUBY
  end

  private

  # A child runs without gems, and Ruby's own libraries become gems.
  def gem_paths(name)
    require name
    Gem.loaded_specs[name]&.full_require_paths.to_a
  end

  # In a child, whose code may make allocations fail.
  def run_failing(code)
    skip "the allocations are replaced in Linux's way" unless linux?
    skip "a Ruby without a shared library has its own allocations first" if RbConfig::CONFIG["ENABLE_SHARED"] == "no"
    compiled("fail_allocation.c", "-shared", "-fPIC", "-ldl") do |library|
      preload = [ENV["LD_PRELOAD"], library].compact.join(" ")
      return assert_child(<<~RUBY + code, env: {"LD_PRELOAD" => preload}, timeout: 50)
        require "fiddle"
        $stderr.reopen(File::NULL) # the reports of tasks that nobody waits for
        stop = ->(reason) { puts(reason) || exit!(1) }
        memory = Fiddle.dlopen(nil)
        fail_allocation = Fiddle::Function.new(memory["fail_allocation"], [Fiddle::TYPE_LONG], Fiddle::TYPE_VOID)
        allocations_left = Fiddle::Function.new(memory["allocations_left"], [], Fiddle::TYPE_LONG)
      RUBY
    end
  end

  def situation(code)
    <<~RUBY
      open_ones = -> { GC.start || Dir.children("/proc/self/fd").size }
      before = open_ones.call
      failures = 0
      1.step do |n|
        outcome = begin
          Heddle.run do
            fail_allocation.call(n)
            begin
              #{code}
            rescue NoMemoryError
              nil
            end
            failed = allocations_left.call.zero?
            fail_allocation.call(0)
            # The same loop is in order.
            pairs = Array.new(20) { IO.pipe }
            tasks = pairs.map do |reader, writer|
              Heddle.spawn { Heddle.spawn { writer.write("x") && writer.close } && reader.read }
            end
            stop.call "after failure \#{n}: \#{tasks.map(&:value)}" unless tasks.all? { |task| task.value == "x" }
            pairs.flatten.each(&:close) # the GC need not find the last ones
            failed ? :failed : :done
          end
        rescue NoMemoryError
          fail_allocation.call(0)
          :failed
        end
        # Another one is, too.
        sum = Heddle.run { Array.new(9) { |i| Heddle.spawn { sleep(0.001) && i } }.sum(&:value) }
        stop.call "after failure \#{n} nothing runs" unless sum == 36
        break if outcome == :done
        failures += 1
      end
      # The GC takes old bytes of a stack for pointers, and keeps what they point to, until others are written there.
      left = nil
      20.times do
        break if (left = open_ones.call) <= before + 1

        Thread.new { Heddle.run { Array.new(50) { Heddle.spawn { sleep(0.001) } }.each(&:wait) } }.join
        Heddle.run { Array.new(50) { Heddle.spawn { Array.new(9).map { sleep(0) } } }.each(&:wait) }
      end
      stop.call "\#{left - before} descriptors are left open" if left > before + 1
      puts "\#{failures} failures"
    RUBY
  end
end
