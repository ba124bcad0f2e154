# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/puma_load"
require "support/puma_process"
require "heddle"

runs_on rubies: :ends, also: %i[oldest_puma]

# Stops and restarts of a single Puma with plugin :heddle, with requests in flight.
class PumaStopsTest < Minitest::Test
  include LoopHelpers
  include PumaLoad

  mode :fiber
  hard_deadline 90

  def test_requests_in_flight_end_before_the_process_does
    PumaProcess.run do |puma|
      held = hold(puma, 50)
      puma.signal(:TERM)
      wait_until(what: "the closed port") { refused?(puma) }
      let_go(puma)
      assert_equal Array.new(50) { |id| "held #{id}" }, held.map(&:value)
      puma.wait
      refute_match(/error/i, puma.written)
    end
  end

  # Puma's own option.
  def test_what_a_stop_waits_for_is_shown
    PumaProcess.run("shutdown_debug true") do |puma|
      held = hold(puma, 1)
      puma.signal(:TERM)
      wait_until(what: "the report") { puma.written.match?(/: Shutdown initiated: the tasks\n.*config\.ru/m) }
      assert_includes puma.written, "=== Begin thread backtrace dump ==="
      let_go(puma)
      assert_equal ["held 0"], held.map(&:value)
    end
  end

  # More than there are fibers. Puma 6 has not accepted them, and the kernel resets them.
  unless Puma::Const::VERSION < "7"
    def test_requests_that_have_not_begun_end_too
      PumaProcess.run(fibers: 5) do |puma|
        held = hold(puma, 12, began: 5)
        wait_for_backlog(puma, 7)
        puma.signal(:TERM)
        wait_until(what: "the stop") { puma.written.include?("Gracefully stopping") }
        let_go(puma)
        assert_equal Array.new(12) { |id| "held #{id}" }, held.map(&:value)
        assert puma.wait
      end
    end
  end

  # A subscription would not end by itself.
  def test_what_requests_have_left_behind_is_cancelled
    PumaProcess.run do |puma|
      puma.connect do |socket|
        socket.write("GET /subscribes?id=1 HTTP/1.1\r\nHost: h\r\n\r\n")
        assert_equal "HTTP/1.1 200 OK\r\n", socket.gets
        held = hold(puma, 1)
        puma.signal(:TERM)
        wait_until(what: "the closed port") { refused?(puma) }
        socket.readpartial(1000)
        refute_path_exists file(puma, "unsubscribed-1")
        let_go(puma)
        assert_equal ["held 0"], held.map(&:value)
        assert puma.wait
        assert_equal "Heddle::Cancellation", File.read(file(puma, "unsubscribed-1"))
      end
    end
  end

  def test_force_shutdown
    PumaProcess.run("force_shutdown_after 1") do |puma|
      requests = Array.new(3) { |id| in_background { puma.get("/sleeps?id=#{id}").code } }
      3.times { |id| wait_until(what: "request #{id}") { File.exist?(file(puma, "sleeps-#{id}")) } }
      puma.signal(:TERM)
      assert_equal %w[503 503 503], requests.map(&:value)
      assert puma.wait
      3.times { |id| assert_equal "Puma::ThreadPool::ForceShutdown", File.read(file(puma, "slept-#{id}")) }
    end
  end

  def test_force_shutdown_of_a_request_that_computes
    PumaProcess.run("force_shutdown_after 1") do |puma|
      computing = in_background { puma.get("/computes?seconds=60").code }
      wait_until(what: "the request") { File.exist?(file(puma, "computes")) }
      puma.signal(:TERM)
      assert_equal "503", computing.value
      assert puma.wait
      assert_equal "Puma::ThreadPool::ForceShutdown", File.read(file(puma, "computed"))
    end
  end

  # Puma forces the calls of the application, not what writes its answer.
  def test_force_shutdown_cancels_a_stream_after_the_grace_time
    PumaProcess.run("force_shutdown_after 1\n@options[:pool_shutdown_grace_time] = 0.5") do |puma|
      puma.connect do |socket|
        socket.write("GET /streams?id=1&count=100000 HTTP/1.1\r\nHost: h\r\n\r\n")
        assert_equal "HTTP/1.1 200 OK\r\n", socket.gets
        puma.signal(:TERM)
        assert puma.wait
        assert_equal "Heddle::Cancellation", File.read(file(puma, "streamed-1"))
      end
    end
  end

  def test_int_hup_and_stops_by_pumactl
    [->(puma) { puma.signal(:INT) }, ->(puma) { puma.signal(:HUP) }, ->(puma) { puma.control("stop") }].each do |stop|
      PumaProcess.run do |puma|
        held = hold(puma, 10)
        stop.call(puma)
        wait_until(what: "the closed port") { refused?(puma) }
        let_go(puma)
        assert_equal Array.new(10) { |id| "held #{id}" }, held.map(&:value)
        assert puma.wait
      end
    end
  end

  def test_halt_waits_for_nothing
    PumaProcess.run do |puma|
      request = in_background do
        puma.get("/sleeps?id=1").code
      rescue EOFError, SystemCallError
        "cut off"
      end
      wait_until(what: "the request") { File.exist?(file(puma, "sleeps-1")) }
      assert_within(8, remeasure: 0) do
        puma.control("halt")
        assert puma.wait
      end
      assert_includes ["cut off", "500"], request.value
    end
  end

  def test_hup_reopens_the_log
    PumaProcess.run("stdout_redirect 'out', 'err', true") do |puma|
      wait_until(what: "the log") { File.exist?(file(puma, "out")) }
      File.rename(file(puma, "out"), file(puma, "old"))
      puma.signal(:HUP)
      wait_until(what: "the new log") { File.exist?(file(puma, "out")) }
      assert_equal "200", puma.get("/waits").code
    end
  end

  # The sockets stay open: connections wait for the process that follows.
  def test_restart_under_load_loses_nothing
    [->(puma) { puma.signal(:USR2) }, ->(puma) { puma.control("restart") }].each do |restart|
      PumaProcess.run do |puma|
        under_load(puma) do |answers|
          wait_until(what: "answers") { answers.size > 50 }
          restart.call(puma)
          wait_until(30, what: "the restart") { puma.written.scan("Use Ctrl-C to stop").size == 2 }
          seen = answers.size
          wait_until(what: "more answers") { answers.size > seen + 50 }
        end
        assert_equal 2, puma.written.scan("up to 200 requests at once, as tasks on 1 thread").size
      end
    end
  end
end
