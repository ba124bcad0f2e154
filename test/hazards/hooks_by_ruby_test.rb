# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Each hook, called by the running Ruby itself and not by a test. The programs run in children, in which the hooks of
# Heddle::Scheduler record their calls.
class HooksByRubyTest < Minitest::Test
  include LoopHelpers

  # [the Ruby that calls it first, a program that prints "right"].
  HOOKS = {
    fiber: ["3.1", 'Heddle.run { Fiber.schedule { puts "right" } }'],
    kernel_sleep: ["3.1", 'Heddle.run { puts(sleep(0.001) && "right") }'],
    block: ["3.1", "queue = Thread::Queue.new; Heddle.run { Heddle.spawn { puts queue.pop }; queue << :right }"],
    unblock: ["3.1", "queue = Thread::Queue.new; Heddle.run { Heddle.spawn { puts queue.pop }; queue << :right }"],
    process_wait: ["3.1", <<~RUBY],
      Heddle.run do
        puts(Process.wait2(fork { exit!(7) }).last.exitstatus == 7 ? "right" : "wrong")
      end
    RUBY
    timeout_after: ["3.1", <<~RUBY],
      require "timeout"
      Heddle.run do
        Timeout.timeout(0.001) { sleep } rescue puts($!.is_a?(Timeout::Error) ? "right" : "wrong")
      end
    RUBY
    address_resolve: ["3.1", <<~RUBY],
      Heddle.run do
        puts(Addrinfo.getaddrinfo("localhost", 80, nil, :STREAM).any?(&:ip?) ? "right" : "wrong")
      end
    RUBY
    io_wait: ["3.1", <<~RUBY],
      reader, writer = IO.pipe
      Heddle.run do
        Heddle.spawn { puts(reader.wait_readable && "right") }
        writer << 1
      end
    RUBY
    io_read: ["3.1", "reader, writer = IO.pipe; Heddle.run { Heddle.spawn { puts reader.gets }; writer.puts(:right) }"],
    io_write: ["3.1", <<~'RUBY'],
      reader, writer = IO.pipe
      Heddle.run do
        Heddle.spawn { puts reader.gets }
        writer.syswrite("right\n")
      end
    RUBY
    io_select: ["3.2", <<~RUBY],
      reader, writer = IO.pipe
      Heddle.run do
        Heddle.spawn { puts(IO.select([reader]) && "right") }
        writer << 1
      end
    RUBY
    io_pread: ["3.3", <<~RUBY],
      Heddle.run do
        puts(File.open("/proc/self/cmdline") { |file| file.pread(1, 0).bytesize == 1 } ? "right" : "wrong")
      end
    RUBY
    io_pwrite: ["3.3", <<~RUBY],
      require "tempfile"
      Heddle.run do
        Tempfile.create("x") { |file| file.pwrite("right", 0) && puts(File.read(file.path)) }
      end
    RUBY
    blocking_operation_wait: ["3.4", 'require "heddle/blocking_operations"; require "zlib"
      Heddle.run { puts(Zlib.inflate(Zlib.deflate("x" * 1_000_000)).bytesize == 1_000_000 ? "right" : "wrong") }'],
    # Where Ruby has handled an interrupt on its way to a system call without the GVL.
    yield: ["4.0", <<~RUBY],
      handled = turns = 0
      trap(:USR1) { handled += 1 }
      Heddle.run do
        other = Heddle.spawn { loop { sleep(0) && turns += 1 } }
        Thread.new { 100.times { Process.kill(:USR1, $$) && sleep(0.001) } }
        File.read("/proc/self/cmdline") until handled > 20 && turns > 0
        other.cancel
      end
      puts "right"
    RUBY
    fiber_interrupt: ["4.0", <<~RUBY]
      reader, = IO.pipe
      Heddle.run do
        Heddle.spawn { reader.gets rescue puts($!.is_a?(IOError) ? :right : :wrong) }
        reader.close
      end
    RUBY
  }.freeze

  HOOKS.each do |hook, (since, program)|
    define_method("test_#{hook}") do
      skip "Ruby calls it since #{since}" unless ruby_at_least?(since)
      assert_called(hook, program)
    end
  end

  # The hook writes what a buffer still holds, and so the others have their turns while a pipe is full.
  def test_io_write_when_what_is_buffered_is_flushed_by_close
    skip "Ruby before 4.0 calls write(2) for that" unless ruby_at_least?("4.0")
    assert_called(:io_write, <<~RUBY)
      reader, writer = IO.pipe
      writer.sync = false
      Heddle.run do
        nil until writer.write_nonblock("x" * 65_536, exception: false) == :wait_writable
        writer.write("y" * 10)
        closer = Heddle.spawn { writer.close }
        ticks = 0
        5.times { sleep(0.001) && ticks += 1 }
        waits = closer.status == :waiting
        puts(reader.read.end_with?("y" * 10) && waits && ticks == 5 ? "right" : "wrong")
      end
    RUBY
  end

  # The same through the thread whose scheduler Ruby closes when the thread ends.
  def test_scheduler_close
    assert_called(:scheduler_close, <<~RUBY)
      Thread.new { Fiber.set_scheduler(Heddle::Scheduler.new); Fiber.schedule { sleep(0.001) && puts("right") } }.join
    RUBY
  end

  # Since 4.0 Ruby itself removes a child's scheduler; the child may set its own.
  def test_a_child_of_a_fork_has_no_scheduler
    out = assert_child(<<~RUBY)
      Heddle.run do
        Heddle.spawn { sleep(0.01) }
        pid = fork { exit!(Fiber.scheduler.nil? && Heddle.run { Heddle.spawn { sleep(0) && 5 }.value } == 5 ? 3 : 1) }
        puts Process.wait2(pid).last.exitstatus
      end
    RUBY
    assert_equal "3", out.chomp
  end

  # Its own Ractors have their own loops to wait in.
  def test_a_task_that_waits_for_a_ractors_port
    skip "Ractor::Port came with Ruby 4.0" unless ruby_at_least?("4.0")
    out = assert_child(<<~RUBY)
      ticks = 0
      Heddle.run do
        Heddle.spawn { loop { sleep(0.001) && ticks += 1 } }
        port = Ractor::Port.new
        Ractor.new(port) { |to| to << Ractor.receive.to_set.size }.send([1, 1, 2])
        puts Heddle.offload { port.receive }
        sleep(0.001) until ticks > 3
        Fiber.scheduler.tasks.each { |task| task.cancel if task.status == :waiting }
      end
      puts ticks > 3
    RUBY
    assert_equal %w[2 true], out.split
  end

  private

  def assert_called(hook, program)
    out = assert_child(<<~RUBY, timeout: 20)
      calls = 0
      counting = Module.new do
        define_method(#{hook.inspect}) do |*arguments, **options, &block|
          calls += 1
          super(*arguments, **options, &block)
        end
      end
      Heddle::Scheduler.prepend(counting)
      #{program}
      puts calls > 0
    RUBY
    assert_equal %w[right true], out.split, "#{hook} was not called, or not answered well"
  end
end
