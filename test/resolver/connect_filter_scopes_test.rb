# frozen_string_literal: true

require "test_helper"
require "support/connect_filter_helpers"

runs_on rubies: :ends, backends: :one

# Which filters bind a connect: of blocks, tasks, fibers, forks and Ractors.
class ConnectFilterScopesTest < Minitest::Test
  include ConnectFilterHelpers

  def test_nested_filters_must_all_allow
    with_server(->(connection) { connection.read(1) }) do |port|
      connect = -> { outcome(port) }
      allow, refuse = ->(*) { true }, ->(*) { false }
      everywhere do
        [[allow, allow, true], [allow, refuse, Refused], [refuse, allow, Refused]].each do |outer, inner, expected|
          assert_equal expected, Heddle.connect_filter(outer) { Heddle.connect_filter(inner, &connect) }
          Heddle.connect_filter(outer)
          assert_equal expected, Heddle.connect_filter(inner, &connect)
          Heddle.connect_filter(nil)
          assert_equal true, connect.call
        end
      end
    end
  end

  def test_tasks_inherit_and_other_tasks_are_free
    with_server(->(connection) { connection.read(1) }) do |port|
      connect = -> { outcome(port) }
      scheduled = nil
      Heddle.run do
        free = Heddle.spawn { [sleep(0.01), connect.call].last }
        bound = Heddle.connect_filter(PUBLIC) do
          [Heddle.spawn { [sleep(0.02), Heddle.spawn(&connect).value].last }, Heddle.spawn { Heddle.offload(&connect) },
            Heddle.spawn { Heddle.run(&connect) }, Heddle.spawn { Enumerator.new { |y| y << connect.call }.next },
            Heddle.spawn { Fiber.new(blocking: false, &connect).resume }]
        end
        assert_equal [Refused] * 5, bound.map(&:value)
        assert_equal [true, true], [free.value, connect.call]
        assert_equal [Refused], Heddle.connect_filter(PUBLIC) { Heddle::FiberPool.new(2).map([1]) { connect.call } }
      end
      Heddle.connect_filter(PUBLIC) do
        assert_equal Refused, Heddle.run(&connect)
        assert_equal [Refused], Heddle::FiberPool.new(2).map([1]) { connect.call }
        assert_equal [Refused] * 3, Heddle.map([1, 2, 3], processes: 2) { connect.call }
        assert_equal true, Thread.new(&connect).value # as with deadlines
        Heddle.run { Fiber.schedule { scheduled = connect.call } }
        assert_equal true, scheduled
      end
      Heddle.connect_filter(PUBLIC)
      assert_equal Refused, Thread.new(&connect).value
      assert_equal [Refused], Heddle.map([1], processes: 1) { connect.call }
      Heddle.run { Fiber.schedule { scheduled = connect.call } }
      assert_equal Refused, scheduled
    end
  end

  # A fiber that yields inside of its filter's block takes the filter with it.
  def test_a_fiber_that_yields_inside_of_its_filter
    with_server(->(connection) { connection.read(1) }) do |port|
      connect = -> { outcome(port) }
      everywhere do
        inner = Fiber.new(blocking: false) { Heddle.connect_filter(PUBLIC) { Fiber.yield && connect.call } }
        inner.resume
        assert_equal true, connect.call
        assert_equal Refused, Heddle.connect_filter(PUBLIC, &connect)
        assert_equal Refused, inner.resume(true)
        assert_equal true, connect.call
      end
    end
  end

  def test_a_fork_keeps_its_filters
    with_server(->(connection) { connection.read(1) }) do |port|
      [-> { Heddle.connect_filter(PUBLIC) && yield_in_fork(port) },
        -> { Heddle.connect_filter(PUBLIC) { yield_in_fork(port) } },
        -> { Heddle.run { Heddle.connect_filter(PUBLIC) { yield_in_fork(port) } } }].each do |place|
        assert_equal "Heddle::ConnectRefused", place.call
        Heddle.connect_filter(nil)
      end
    end
  end

  def test_ractors
    out = assert_child(<<~RUBY, env: {"RUBYOPT" => "-W:no-experimental"})
      server = TCPServer.new("127.0.0.1", 0)
      socket = File.join("#{Dir.tmpdir}", "heddle-\#{Process.pid}")
      listening = UNIXServer.new(socket)
      value = ->(ractor) { ractor.respond_to?(:value) ? ractor.value : ractor.take }
      ways = lambda do
        value.call(Ractor.new(server.addr[1], socket) do |port, path|
          [-> { TCPSocket.new("localhost", port) }, -> { TCPSocket.open("127.0.0.1", port) },
            -> { Addrinfo.tcp("127.0.0.1", port).connect }, -> { UNIXSocket.new(path) },
            -> { UDPSocket.new.connect("127.0.0.1", port) }].map do |way|
            way.call && "connected"
          rescue Heddle::ConnectRefused => error
            error.message[/Ractor/] || "refused"
          end
        end)
      end
      p ways.call.uniq
      Heddle.connect_filter(Heddle::ConnectFilter::PUBLIC)
      p ways.call.uniq
      Heddle.connect_filter { true }
      p ways.call.uniq
      Heddle.connect_filter(Ractor.make_shareable(nil.instance_eval { ->(*) { true } }))
      p ways.call.uniq
      listening.close
      File.unlink(socket)
    RUBY
    assert_equal [["connected"], ["refused"], ["Ractor"], ["connected"]].map(&:inspect), out.lines(chomp: true)
  end

  private

  # true, or the class of the error.
  def outcome(port)
    TCPSocket.new("localhost", port).close
    true
  rescue => error
    error.class
  end

  def yield_in_fork(port)
    reader, writer = IO.pipe
    pid = fork do
      writer.write(begin
        TCPSocket.new("localhost", port) && "connected"
      rescue => error
        error.class.name
      end)
      writer.close
      exit!(0)
    end
    writer.close
    reader.read
  ensure
    reader&.close
    Process.wait(pid) if pid
  end
end
