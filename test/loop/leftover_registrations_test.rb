# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/system_calls"
require "io/wait"

# Libraries close their sockets with close(2), which neither Ruby nor the loop sees. Once nobody waits, what a backend
# has asked the kernel for must be gone: a poll that is left in an io_uring keeps the socket open, so that its peer
# never sees the end, and a registration that fires for nobody, again and again, burns CPU time.
class LeftoverRegistrationsTest < Minitest::Test
  include LoopHelpers

  ROUNDS = 40

  def setup
    skip "the numbers of system calls are not known" unless SystemCalls.here?
  end

  # Ways in which a wait for +near+ ends. Nothing reads what the peer sends meanwhile.
  WAITS = {
    # As pg waits. Bytes that arrive while the poll is being removed complete it.
    "urgent data, and more arrives" => ->(near, far) {
      waiter = Heddle.spawn { near.wait(IO::READABLE | IO::PRIORITY, 1) }
      Heddle.spawn { far.write("a").then { sleep(0) }.then { far.write("b") } }
      waiter.value
      5.times { far.write("c").then { sleep(0) } }
    },
    "urgent data alone, and other data arrives" => ->(near, far) {
      waiter = Heddle.spawn { near.wait(IO::PRIORITY, 0.001) }
      3.times { far.write("c").then { sleep(0) } }
      waiter.value
      3.times { far.write("c").then { sleep(0) } }
    },
    "a timeout" => ->(near, _) { near.wait_readable(0.0001) },
    "a timeout, and data arrives" => ->(near, far) {
      waiter = Heddle.spawn { near.wait(IO::READABLE | IO::PRIORITY, 0.0001) }
      far.write("a")
      waiter.value
      far.write("b")
    },
    "a cancel" => ->(near, _) { Heddle.spawn { near.wait_readable }.cancel.wait },
    "a cancel, and data arrives" => ->(near, far) {
      waiter = Heddle.spawn { near.wait(IO::READABLE | IO::PRIORITY) }
      sleep(0)
      waiter.cancel
      far.write("a")
      waiter.wait
      far.write("b")
    },
    "two that wait for different things" => ->(near, far) {
      waiters = [Heddle.spawn { near.wait(IO::PRIORITY, 0.0002) }, Heddle.spawn { near.wait_readable }]
      far.write("a")
      waiters.each(&:value)
    },
    "a select that another one ends" => ->(near, far) {
      with = UNIXSocket.pair
      waiter = Heddle.spawn { IO.select([near, with[0]], nil, [near], 1) }
      with[1].write("a")
      waiter.value
      far.write("a")
      with.each(&:close)
    }
  }.freeze

  WAITS.each do |name, work|
    define_method("test_nothing_is_left_after_#{name.tr(" ,", "_")}") do
      Heddle.run do
        sleep(0.02)
        own = polls_in_the_ring
        ends = Array.new(ROUNDS) { connection.tap { |near, far| work.call(near, far) } }
        ends.each { |near, _| close_behind_our_back(near) }
        ends.each { |_, far| assert_sees_the_end(far, name) }
        sleep(0.02)
        assert_equal own, polls_in_the_ring, "polls left in the ring after #{name}"
        assert_quiet
      ensure
        ends&.each { |_, far| far.close }
      end
    end
  end

  # More closes and removals than the queues of an io_uring hold.
  def test_thousands_at_once
    with_descriptors(6000, least: 5000) do
      Heddle.run do
        sleep(0.02)
        own = polls_in_the_ring
        ends = Array.new(2400) { UNIXSocket.pair }
        waiters = ends.map { |near, _| Heddle.spawn { near.wait(IO::READABLE | IO::PRIORITY) } }
        sleep(0.001)
        ends.each { |_, far| far.write("a") }
        waiters.each(&:cancel)
        waiters.each(&:wait)
        ends.each { |near, _| close_behind_our_back(near) }
        ends.each { |_, far| assert_sees_the_end(far, "a cancel of thousands") }
        sleep(0.02) # the poll of the loop's own timer ends with it
        assert_equal own, polls_in_the_ring
      ensure
        ends&.each { |_, far| far.close }
      end
    end
  end

  # The file stays open by its copy, and epoll still knows it by the old number.
  def test_a_duplicated_descriptor_does_not_keep_the_loop_busy
    Heddle.run do
      near, far = UNIXSocket.pair
      copy = near.dup
      number = near.fileno
      waiter = Heddle.spawn { near.wait(IO::READABLE | IO::PRIORITY) }
      sleep(0.001)
      close_behind_our_back(near)
      other_near, other_far = UNIXSocket.pair
      assert_equal number, [other_near, other_far].map(&:fileno).min
      5.times { far.write("x") }
      waiter.cancel.wait
      assert_quiet { far.write("x") }
      other_far.write("hello")
      assert_equal "hello", other_near.readpartial(10)
      assert_equal "xxxxx", copy.readpartial(5)
    ensure
      [far, copy, other_near, other_far].compact.each(&:close)
    end
  end

  private

  def connection
    server = TCPServer.new("127.0.0.1", 0)
    near = TCPSocket.new("127.0.0.1", server.addr[1])
    [near, server.accept]
  ensure
    server&.close
  end

  def close_behind_our_back(socket)
    SystemCalls.close(socket.fileno)
    socket.autoclose = false
  end

  # A connection that is closed with bytes unread is reset.
  def assert_sees_the_end(far, name)
    assert far.wait_readable(5), "the peer did not see the end after #{name}"
    begin
      assert_nil far.read_nonblock(100, exception: false)
    rescue Errno::ECONNRESET
      nil
    end
  end

  # How many polls the kernel holds for our io_uring; 0 with another backend.
  def polls_in_the_ring
    ring = Dir["/proc/self/fd/*"].find do |path|
      File.readlink(path).include?("io_uring")
    rescue Errno::ENOENT
      false
    end
    return 0 unless ring

    File.read(ring.sub("/fd/", "/fdinfo/"))[/^PollList:.*?(?=^\S|\z)/m].scan("op=").size
  end

  # The loop sleeps while all tasks wait.
  def assert_quiet
    before = Fiber.scheduler.statistics[:polls]
    5.times do
      yield if block_given?
      sleep(0.01)
    end
    looks = Fiber.scheduler.statistics[:polls] - before
    assert_operator looks, :<, 60, "the loop looked at the kernel #{looks} times in 50 ms"
  end
end
