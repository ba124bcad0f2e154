# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

class AddressResolveTest < Minitest::Test
  include LoopHelpers

  def test_localhost_from_the_hosts_file
    Heddle.run do
      addresses = Fiber.scheduler.address_resolve("localhost")
      assert_empty addresses - %w[127.0.0.1 ::1]
      refute_empty addresses
    end
  end

  # nsswitch and /etc/hosts apply, as in every program of the machine.
  def test_this_machines_name_resolves_as_by_getaddrinfo
    name = Socket.gethostname
    expected = begin
      Addrinfo.getaddrinfo(name, nil, nil, :STREAM).map { |address| address.ip_address.sub(/%.*/, "") }.uniq
    rescue SocketError
      skip "this machine does not know its own name"
    end
    Heddle.run do
      assert_equal expected.sort,
        Fiber.scheduler.address_resolve(name).map { |address| address.sub(/%.*/, "") }.uniq.sort
    end
  end

  def test_addresses_are_their_own_names
    Heddle.run do
      assert_equal ["127.0.0.1"], Fiber.scheduler.address_resolve("127.0.0.1")
      assert_equal ["::1"], Fiber.scheduler.address_resolve("::1")
    end
  end

  def test_an_unknown_name
    Heddle.run do
      error = assert_raises(SocketError) { Addrinfo.getaddrinfo("no-such-name.invalid", 80) }
      refute_empty error.message
      assert_raises(SocketError) { TCPSocket.new("no-such-name.invalid", 80) }
    end
  end

  # Names of hosts do not, see resolver.c.
  def test_names_of_interfaces_differ_in_case
    Heddle.run do
      assert_equal ["fe80::1%lo"], Fiber.scheduler.address_resolve("FE80::1%lo")
      assert_nil Fiber.scheduler.address_resolve("fe80::1%LO")
    end
  end

  def test_bad_names
    Heddle.run do
      assert_raises(TypeError) { Fiber.scheduler.address_resolve(nil) }
      assert_raises(TypeError) { Fiber.scheduler.address_resolve(12) }
      assert_raises(ArgumentError) { Fiber.scheduler.address_resolve("a\0b") }
      assert_nil Fiber.scheduler.address_resolve("x" * 300 + ".invalid")
    rescue SocketError
      nil # the machine's resolver has its own message for a name that is too long
    end
  end

  def test_many_at_once
    Heddle.run do
      answers = Array.new(200) { Heddle.spawn { Fiber.scheduler.address_resolve("localhost") } }.map(&:value)
      assert_equal 1, answers.uniq.size
    end
  end

  def test_look_ups_make_no_ruby_thread
    Heddle.run do
      before = Thread.list.size
      tasks = Array.new(20) { Heddle.spawn { Fiber.scheduler.address_resolve("localhost") } }
      assert_equal before, Thread.list.size
      tasks.each(&:value)
    end
  end

  def test_a_cancelled_look_up
    Heddle.run do
      tasks = Array.new(50) { Heddle.spawn { Fiber.scheduler.address_resolve("no-such-name.invalid") } }
      tasks.each(&:cancel).each(&:wait)
      assert_empty tasks.map(&:status) - %i[cancelled completed failed]
      GC.start
      refute_empty Fiber.scheduler.address_resolve("localhost")
    end
  end

  def test_a_run_that_ends_during_a_look_up
    20.times do
      Heddle.run { Heddle.spawn { Fiber.scheduler.address_resolve("no-such-name.invalid") }.cancel }
    end
    GC.start
    Heddle.run { refute_empty Fiber.scheduler.address_resolve("localhost") }
  end

  def test_connecting_by_name
    server = TCPServer.new("127.0.0.1", 0)
    Heddle.run do
      accepted = Heddle.spawn { server.accept }
      client = TCPSocket.new("localhost", server.addr[1])
      client.write("x")
      assert_equal "x", accepted.value.readpartial(1)
      client.close
    end
  ensure
    server&.close
  end

  def test_in_a_child_of_fork
    Heddle.run { Fiber.scheduler.address_resolve("localhost") }
    reader, writer = IO.pipe
    pid = fork do
      writer.puts(Heddle.run { Fiber.scheduler.address_resolve("localhost").any? })
      writer.close
      exit!(0)
    end
    writer.close
    assert_equal "true\n", reader.read
    Process.wait(pid)
    reader.close
  end

  def test_outside_of_a_run_ruby_looks_up_itself
    assert_includes %w[127.0.0.1 ::1], Addrinfo.getaddrinfo("localhost", 80).first.ip_address
  end
end
