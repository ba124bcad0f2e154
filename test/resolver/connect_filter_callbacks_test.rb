# frozen_string_literal: true

require "test_helper"
require "support/connect_filter_helpers"
require "timeout"

runs_on rubies: :ends, backends: :one

# What a filter for connects may do: raise, wait, connect, and change the filters.
class ConnectFilterCallbacksTest < Minitest::Test
  include ConnectFilterHelpers

  def test_a_filter_that_raises
    with_server(->(connection) { connection.close }) do |port|
      everywhere do
        error = assert_raises(Refused) do
          Heddle.connect_filter(->(*) { raise KeyError, "no such host" }) { Net::HTTP.new("localhost", port).start }
        end
        assert_match(/KeyError: no such host/, error.message)
        assert_kind_of KeyError, causes(error)[1..].find { |cause| KeyError === cause }
        assert_raises(Net::ReadTimeout) do
          Heddle.connect_filter(->(*) { raise Net::ReadTimeout }) { TCPSocket.new("localhost", port) }
        end
        assert_raises(NotImplementedError) do
          Heddle.connect_filter(->(*) { raise NotImplementedError }) { TCPSocket.new("localhost", port) }
        end
        before = descriptor_count
        out = ->(*) { throw :out, 7 }
        assert_equal 7, catch(:out) { Heddle.connect_filter(out) { TCPSocket.new("localhost", port) } }
        assert_equal before, descriptor_count
      end
    end
  end

  def test_a_filter_that_waits_lets_other_tasks_run_and_is_bounded
    with_server(->(connection) { connection.read(1) }) do |port|
      turns = 0
      waits = ->(*) { sleep(0.05) && true }
      Heddle.run do
        other = Heddle.spawn { loop { (turns += 1) && sleep(0.005) } }
        Heddle.connect_filter(waits) { TCPSocket.new("localhost", port).close }
        assert_operator turns, :>, 1
        other.cancel
      end
      everywhere do
        WAYS.each_value do |way|
          forever = ->(*) { sleep }
          assert_within(1) do
            assert_raises(Heddle::DeadlineExceeded) do
              Heddle.deadline(0.02) { Heddle.connect_filter(forever) { way.call("localhost", port) } }
            end
          end
          assert_raises(Timeout::Error) do
            Timeout.timeout(0.02, Net::OpenTimeout) { Heddle.connect_filter(forever) { way.call("localhost", port) } }
          end
        end
        assert_raises(Net::OpenTimeout) do
          Heddle.connect_filter(->(*) { sleep }) { Net::HTTP.start("localhost", port, open_timeout: 0.02) }
        end
      end
      Heddle.run do
        interrupted = Heddle.spawn { Heddle.connect_filter(->(*) { sleep }) { TCPSocket.new("localhost", port) } }
        interrupted.cancel
        assert_raises(Heddle::TaskCancelled) { interrupted.value }
      end
    end
  end

  def test_a_filter_that_connects_does_not_ask_itself
    with_server(->(connection) { connection.read(1) }) do |port|
      everywhere do |place|
        calls = 0
        curious = lambda do |_, _|
          calls += 1
          TCPSocket.new("localhost", port).close
          Heddle.spawn { TCPSocket.new("localhost", port).close }.value if place == "a task"
          true
        end
        Heddle.connect_filter(PUBLIC) do
          assert_raises(Refused) { Heddle.connect_filter(curious) { TCPSocket.new("localhost", port) } }
        end
        Heddle.connect_filter(curious)
        TCPSocket.new("localhost", port).close
        assert_includes 2..4, calls # one for each address
        Heddle.connect_filter(nil)
      end
    end
  end

  # While the filter of one connect waits, another filter is set, or none.
  def test_filters_that_change_meanwhile
    with_server(->(connection) { connection.read(1) }) do |port|
      Heddle.run do
        Heddle.connect_filter { |*| Heddle.connect_filter(nil) || true }
        TCPSocket.new("localhost", port).close
        Heddle.connect_filter { |*| Heddle.connect_filter(PUBLIC) && false }
        assert_raises(Refused) { TCPSocket.new("localhost", port) }
        assert_same PUBLIC, Heddle.connect_filter
      end
    end
  end

  # Exceptions, cancels and switches at random: no descriptor is left, and no connect goes around.
  def test_many_tasks_at_random
    seed = Integer(ENV.fetch("SEED", rand(1 << 16)))
    random = Random.new(seed)
    rounds = ENV["HEDDLE_STRESS"] ? Float(ENV["HEDDLE_STRESS"]) : 0.5
    accepted = 0
    with_server(->(connection) { (accepted += 1) && connection.read }) do |port|
      before = descriptor_count
      allowed = 0
      filter = lambda do |_, _|
        case random.rand(7)
        when 0 then sleep(random.rand / 500)
        when 1 then raise "no"
        when 2 then TCPSocket.new("localhost", port).close
        when 3 then Heddle.run { 1 }
        when 4 then GC.start if random.rand(20).zero?
        end
        random.rand(2).zero?.tap { |answer| allowed += 1 if answer }
      end
      finished = monotonic + rounds
      while monotonic < finished
        Heddle.run do
          Heddle.connect_filter(filter) do
            tasks = Array.new(20) do
              Heddle.spawn do
                Heddle.deadline(random.rand / 20) { WAYS.values.sample(random: random).call("localhost", port) }
              rescue Refused, Heddle::DeadlineExceeded, Timeout::Error
                nil
              end
            end
            tasks.sample(3, random: random).each(&:cancel)
            tasks.each { |task| task.value rescue Heddle::TaskCancelled } # rubocop:disable Style/RescueModifier
          end
        end
      end
      GC.start
      assert_operator descriptor_count, :<=, before + 60, "seed #{seed}" # the server's
      assert_operator allowed, :>, 0
    end
  end
end
