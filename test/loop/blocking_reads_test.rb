# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# IO#readpartial and similar reads: the hook returns that nothing is there, since it cannot tell them from
# IO#read_nonblock, and they wait by io_wait. Reads of sockets make no system call in vain after a read that took all
# bytes.
class BlockingReadsTest < Minitest::Test
  include LoopHelpers

  ROUNDS = 50

  # What Ruby calls, by name.
  class Recording < Heddle::Scheduler
    def calls = @calls ||= []

    def io_read(...) = record(:io_read) { super }

    def io_wait(...) = record(:io_wait) { super }

    private

    def record(name)
      calls << name
      yield
    end
  end

  def test_an_exchange_makes_no_needless_read
    with_pair do |near, far|
      Heddle.run do
        before = Fiber.scheduler.statistics
        echo = Heddle.spawn { ROUNDS.times { far.write(far.readpartial(100)) } }
        ROUNDS.times do |number|
          near.write("ping #{number}")
          assert_equal "ping #{number}", near.readpartial(100)
        end
        echo.value
        after = Fiber.scheduler.statistics
        assert_equal 2 * ROUNDS, after[:waits][:io] - before[:waits][:io]
        # Each side, each round: send, arm, poll, receive. A read in vain would be one more.
        assert_operator after[:system_calls] - before[:system_calls], :<, 9 * ROUNDS
      end
    end
  end

  # A poll before all ready fibers had their turn would find bytes that then have to wait for those fibers.
  def test_many_exchanging_fibers_are_polled_once_a_round
    pairs = Array.new(20) { UNIXSocket.pair }
    Heddle.run do
      before = Fiber.scheduler.statistics
      tasks = pairs.flat_map do |near, far|
        [Heddle.spawn { ROUNDS.times { near.write("ping").then { near.readpartial(10) } } },
          Heddle.spawn { ROUNDS.times { far.write(far.readpartial(10)) } }]
      end
      tasks.each(&:value)
      after = Fiber.scheduler.statistics
      assert_operator after[:polls] - before[:polls], :<, 2 * ROUNDS * pairs.size / 6
    end
  ensure
    pairs&.flatten&.each(&:close)
  end

  def test_a_read_that_waits_does_so_in_ruby
    assert_equal %i[io_read io_wait io_read], calls { |reader| assert_equal "late", reader.readpartial(100) }
  end

  # A C extension that closes the IO without our knowledge frees that buffer: a wait must not keep its address.
  def test_a_read_into_the_buffer_of_the_io_itself_waits_in_ruby
    assert_equal %i[io_read io_wait io_read], calls { |reader| assert_equal "late", reader.gets }.first(3)
  end

  def test_bytes_and_the_end_that_arrive_meanwhile_are_read
    with_pair do |reader, writer|
      Heddle.run do
        %w[a b c].each do |text|
          writer.write(text)
          assert_equal text, reader.readpartial(100)
        end
        writer.write("last")
        writer.close
        assert_equal "last", reader.readpartial(100)
        assert_raises(EOFError) { reader.readpartial(100) }
      end
    end
  end

  def test_a_reused_descriptor_number_inherits_no_harmful_state
    Heddle.run do
      2.times do
        with_pair do |reader, writer|
          writer.write("x")
          assert_equal "x", reader.readpartial(100)
          assert_equal :wait_readable, reader.read_nonblock(100, exception: false)
        end
      end
      File.open(__FILE__) { |file| assert_equal "# frozen", file.sysread(8) }
    end
  end

  # Ruby makes room in the String again before each read.
  def test_the_string_may_be_changed_while_a_fiber_waits_to_fill_it
    with_pair do |reader, writer|
      Heddle.run do
        string = +"old"
        waiting = Heddle.spawn { reader.readpartial(100_000, string) }
        string.replace("")
        GC.start
        writer.write("new" * 10_000)
        assert_same string, waiting.value
        assert_equal "new" * 10_000, string
        assert_equal "new more", string.replace("new") << " more"
      end
    end
  end

  def test_a_cancelled_read_leaves_its_string_unlocked
    with_pair do |reader, writer|
      Heddle.run do
        string = +"old"
        waiting = Heddle.spawn { reader.readpartial(100, string) }
        waiting.cancel.wait
        writer.write("new")
        assert_equal "new", reader.readpartial(100, string)
      end
    end
  end

  private

  # The hooks that a read without data calls.
  def calls
    with_pair do |reader, writer|
      in_thread do
        scheduler = Recording.new
        Fiber.set_scheduler(scheduler)
        Fiber.schedule { yield reader }
        Fiber.schedule { writer.write("late").then { writer.close_write } }
        Fiber.set_scheduler(nil)
        scheduler.calls
      end
    end
  end
end
