# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# More descriptors than select(2) can name, all waited for at once.
class ManySocketsTest < Minitest::Test
  include LoopHelpers

  def test_nine_thousand_sockets_waiting_at_once
    with_descriptors(18_200, least: 2_400) do |limit|
      count = [9000, (limit - 200) / 2].min
      ends = Array.new(count) { UNIXSocket.pair }
      assert_operator ends.last.first.fileno, :>, 1024
      received = Heddle.run do
        readers = ends.map { |reader, _| Heddle.spawn { reader.readpartial(16) } }
        assert_equal count, readers.count { |task| task.status == :waiting }
        # In another order than the waits began.
        ends.each_index.to_a.shuffle(random: Random.new(1)).each { |index| ends[index].last.write(index.to_s) }
        readers.map(&:value)
      end
      assert_equal Array.new(count, &:to_s), received
    ensure
      ends&.flatten&.each(&:close)
    end
  end

  def test_one_ready_among_thousands_is_found_and_the_others_still_wait
    with_descriptors(8_200, least: 2_400) do |limit|
      ends = Array.new([4000, (limit - 200) / 2].min) { UNIXSocket.pair }
      Heddle.run do
        readers = ends.map { |reader, _| Heddle.spawn { reader.readpartial(16) } }
        [0, ends.size - 1, ends.size / 2].each do |index|
          ends[index].last.write("x")
          assert_equal "x", readers[index].value
        end
        assert_equal ends.size - 3, readers.count { |task| task.status == :waiting }
        readers.each(&:cancel)
      end
    ensure
      ends&.flatten&.each(&:close)
    end
  end

  # One poll(2) of so many takes as long as hundreds of turns.
  def test_polls_of_thousands_leave_half_of_the_time_to_the_tasks
    with_descriptors(8_200, least: 8_200) do
      ends = Array.new(4000) { UNIXSocket.pair }
      Heddle.run do
        skip "only poll asks for all at each poll" unless Fiber.scheduler.backend == "poll"
        readers = ends.map { |reader, _| Heddle.spawn { reader.readpartial(16) } }
        assert_operator polls_of_yields(20_000), :<, 150 # by turns alone it would be one in 64, 312
        readers.each(&:cancel)
      end
    ensure
      ends&.flatten&.each(&:close)
    end
  end

  def test_no_descriptor_is_left_open
    Heddle.run { Heddle.spawn { sleep 0 } } # what the process opens once
    before = descriptor_count
    20.times do
      Heddle.run do
        with_pair do |reader, writer|
          task = Heddle.spawn { reader.readpartial(1) }
          writer.write("x")
          task.value
        end
      end
    end
    assert_operator descriptor_count, :<=, before
  end

  private

  def polls_of_yields(count)
    sleep 0
    before = Fiber.scheduler.statistics[:polls]
    [1, 2].map { Heddle.spawn { (count / 2).times { sleep 0 } } }.each(&:value)
    Fiber.scheduler.statistics[:polls] - before
  end
end
