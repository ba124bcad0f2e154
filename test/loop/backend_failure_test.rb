# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/refusals"
require "support/system_calls"

# What the kernel allowed when the loop began it later refuses: the process enters a sandbox, or other code closes the
# backend's descriptors. No task has caused that, so none may notice.
class BackendFailureTest < Minitest::Test
  include LoopHelpers
  include Refusals

  IO_URING_ENTER = 426
  EPOLL_WAITS = SystemCalls::NUMBERS[:epoll_waits]

  # The FAILURE happens while tasks wait for everything that can be waited for. Then each wait ends as it should.
  WAITS = <<~'RUBY'
    require "support/system_calls"
    require "tempfile"
    links = -> { Dir["/proc/self/fd/*"].to_h { |path| [path[/\d+\z/].to_i, (File.readlink(path) rescue "")] } }
    rubys_own = links.call # its timer thread has an epoll, too
    Heddle.run do
      began_with = Fiber.scheduler.backend
      pairs = Array.new(60) { UNIXSocket.pair }
      readers = pairs.map { |reader, _| Heddle.spawn { reader.readpartial(10) } }
      same = UNIXSocket.pair
      both = [Heddle.spawn { same[0].wait_readable && :readable }, Heddle.spawn { same[0].wait_readable && :readable }]
      selected = UNIXSocket.pair
      selecting = Heddle.spawn { IO.select([same[0], selected[0]], nil, nil, 30)&.first&.size }
      cancelled = Heddle.spawn { UNIXSocket.pair[0].readpartial(1) }
      closed_pair = UNIXSocket.pair
      closed = Heddle.spawn { closed_pair[0].readpartial(1) rescue :closed }
      slept = Heddle.spawn { sleep(0.02) && :slept }
      queue = Thread::Queue.new
      popped = Heddle.spawn { queue.pop }
      sleep(0.001) # all of that is armed
      FAILURE
      cancelled.cancel
      closed_pair[0].close
      sleep(0.001)
      pairs.each_with_index { |(_, writer), index| writer.write(index.to_s) }
      same[1].write("x")
      Thread.new { queue << :popped }
      raise "wrong bytes" unless readers.map(&:value) == Array.new(60, &:to_s)
      cancelled.wait
      after = Array.new(20) { |index| Heddle.spawn { sleep(0.001) && index } }
      raise "later tasks fail" unless after.map(&:value) == [*0...20]
      puts [began_with, Fiber.scheduler.backend, both.map(&:value), selecting.value, cancelled.status, closed.value,
        slept.value, popped.value].flatten.join(" ")
    end
  RUBY

  ENDS = "readable readable 1 cancelled closed slept popped\n"

  {"uring" => "epoll", "epoll" => "poll"}.each do |backend, next_best|
    {"a_sandbox" => Errno::EPERM, "no_memory" => Errno::ENOMEM, "nonsense" => Errno::EINVAL}.each do |name, error|
      define_method("test_#{backend}_goes_on_with_#{next_best}_after_#{name}") do
        calls = (backend == "uring") ? [IO_URING_ENTER] : EPOLL_WAITS
        assert_falls_back(backend, next_best, "SystemCalls.refuse(#{error}, *#{calls})")
      end
    end

    define_method("test_#{backend}_goes_on_with_#{next_best}_after_its_descriptor_is_closed") do
      assert_falls_back(backend, next_best, "SystemCalls.close(#{descriptor_of(backend)})")
    end

    # By then the number is a file of the program's, and must not be closed with the backend.
    define_method("test_#{backend}_leaves_the_file_that_got_its_number") do
      failure = <<~RUBY
        victim = Tempfile.new
        number = #{descriptor_of(backend)}
        SystemCalls.dup2(victim.fileno, number)
        at_exit do
          victim.syswrite("x")
          puts File.identical?(victim.path, "/proc/self/fd/\#{number}") ? "kept" : "closed"
        end
      RUBY
      assert_falls_back(backend, next_best, failure, more: "kept\n")
    end
  end

  # Under a filter that knows neither eventfd nor eventfd2 a pipe remains.
  def test_without_eventfd_a_pipe_wakes_the_loop
    [Errno::EPERM, Errno::ENOSYS].each do |error|
      refusing(290, error) do |launcher|
        assert_equal "popped\n", assert_child(<<~RUBY, launcher: launcher)
          Heddle.run do
            queue = Thread::Queue.new
            Thread.new { sleep(0.01); queue << :popped }
            puts queue.pop
          end
        RUBY
      end
    end
  end

  private

  def descriptor_of(backend)
    kind = (backend == "uring") ? "io_uring" : "eventpoll"
    %((links.call.to_a - rubys_own.to_a).find { |_, link| link.include?("#{kind}") }.first)
  end

  def assert_falls_back(backend, next_best, failure, more: "")
    skip "no #{backend} here" unless Heddle::Scheduler.backends.include?(backend)
    skip "the numbers of system calls are not known" unless SystemCalls.here?
    environment = {"HEDDLE_BACKEND" => backend, "RUBYLIB" => "#{ROOT}/test"}
    outcome = in_child(WAITS.sub("FAILURE") { failure }, env: environment)
    assert_equal "#{backend} #{next_best} #{ENDS}#{more}", outcome.out, outcome.err
    assert outcome.status.success?, outcome.err
    assert_match(/heddle: the kernel refuses #{backend} from now on \(.*\); continuing with #{next_best}/, outcome.err)
  end
end
