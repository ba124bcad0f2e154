# frozen_string_literal: true

require "test_helper"
require "net/http"
require "support/worlds"

# What a program sees of a simulated world.
class SimulationTest < Minitest::Test
  include Worlds

  def test_the_same_seed_does_the_same
    world = lambda do |world|
      world.host("api.example") { |server| server.http(80) { |request| "x" * (request.path.size * 5_000) } }
      world.link("api.example", latency: 0.01..0.5, loss: 0.1, reset: 0.01, bandwidth: 100_000)
      tasks = %w[/a /bb /ccc].map { |path| Heddle.spawn { Net::HTTP.get(URI("http://api.example#{path}")) } }
      tasks.each { |task| task.value rescue Errno::ECONNRESET } # rubocop:disable Style/RescueModifier
    end
    digests = Array.new(2) { (1..20).map { |seed| run_world(seeds: [seed], &world) } }
    assert_equal(*digests)
    assert_operator digests.first.uniq.size, :>, 15
  end

  # Of what is ready at the same moment, any may come first.
  def test_the_order_is_the_seeds
    orders = Array.new(2) { (1..20).map { |seed| order_of(seed) } }
    assert_equal(*orders)
    assert_operator orders.first.uniq.size, :>, 10
  end

  def order_of(seed)
    order = []
    run_world(seeds: [seed]) do
      pairs = Array.new(6) { UNIXSocket.pair }
      tasks = pairs.map.with_index { |(reader, _), index| Heddle.spawn { reader.readpartial(1) && order << index } }
      pairs.each { |_, writer| writer.write("x") }
      tasks.each(&:wait)
      pairs.flatten.each(&:close)
    end
    order
  end

  # What a program loads once, and what it prints, must not move the rest.
  def test_reading_files_and_a_trace_move_nothing
    reader, writer = IO.pipe
    printed = Thread.new { reader.read }
    read = -> { 100.times { File.read(__FILE__) } }
    orders = [[-> {}, nil], [read, nil], [-> {}, writer]].map do |work, trace|
      order = []
      run_world(trace: trace) do |world|
        5.times do |index|
          Heddle.spawn do
            3.times do
              sleep(0)
              order << index
              work.call
              100.times { world.fault?(1, "fault") }
              order << index
            end
          end
        end
      end
      order
    end
    assert_equal [orders.first], orders.uniq
    writer.close
    assert_operator printed.value.scan("fault").size, :>=, 1500
  end

  def test_the_clocks
    run_world do
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      assert_equal "2030-01-01", Time.now.utc.strftime("%F")
      sleep 3600
      assert_in_delta 3600, Process.clock_gettime(Process::CLOCK_MONOTONIC) - start, 0.01
      assert_equal 1, Time.new.utc.hour # rubocop:disable Style/TimeNow -- the other one
      assert_kind_of Integer, Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
      assert_raises(Timeout::Error) { Timeout.timeout(1000) { sleep } }
      if ruby_at_least?("3.2")
        before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        assert_nil Thread::Queue.new.pop(timeout: 5)
        assert_nil Thread::SizedQueue.new(1).tap { |queue| queue << 1 }.push(2, timeout: 5)
        assert_in_delta 10, Process.clock_gettime(Process::CLOCK_MONOTONIC) - before, 0.01
      end
      before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) > before + 0.01 # a loop that reads the clock ends
    end
    assert_operator Time.now.year, :<, 2030
  end

  # Neither the clock of the run before nor its numbers matter; those of the program go on as its own seed has them.
  def test_what_one_run_leaves_to_the_next
    srand(5)
    numbers = [rand, rand]
    runs = Array.new(2) do
      srand(5)
      first, seen = rand, nil
      run_world do |world|
        600.times { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
        seen = [world.now, rand, [*1..9].shuffle, Random.rand]
      end
      [first, seen, rand]
    end
    assert_equal(*runs)
    assert_equal numbers.first, runs.first.first
    refute_includes numbers, runs.first[1][1]
  ensure
    srand
  end

  # Fields of a Hash without braces look like options.
  def test_queues_take_what_ruby_lets_them_take
    queue = Thread::Queue.new
    queue.push(timeout: 5)
    queue.push(a: 1)
    assert_equal [{timeout: 5}, {a: 1}], [queue.pop, queue.pop]
    skip "no timeouts before Ruby 3.2" if RUBY_VERSION < "3.2"
    run_world do |world|
      assert_nil queue.pop(timeout: -1)
      assert_equal 0, world.now
      assert_nil queue.pop(timeout: 1.5)
      assert_nil Thread::SizedQueue.new(1).push(1).push(2, timeout: 1.5)
      assert_equal 3, world.now
    end
  end

  def test_seeds_without_an_end
    error = assert_raises(KeyError) do
      capture_io { Heddle::Simulation.run(seeds: 1..) { |world| raise KeyError if world.seed == 5 } }
    end
    assert_equal 5, error.seed
  end

  def test_a_wait_that_nothing_can_end
    error = fails(Heddle::Deadlock) { Thread::Queue.new.pop }
    assert_equal 7, error.seed
    assert_includes @said, "seed 7"
    fails(Heddle::Deadlock) do |world|
      world.host("api.example") { |server| server.tcp(80) { sleep } }
      TCPSocket.new("api.example", 80).read
    end
    fails(Heddle::Deadlock, time_limit: 60) { loop { sleep 10 } }
    fails(Heddle::Deadlock, time_limit: 0.01) do |world|
      nil until world.now > 0.02 || Process.clock_gettime(Process::CLOCK_MONOTONIC) == 0 # no wait
      10.times { sleep 10 }
      flunk
    end
  end

  def test_errors_keep_class_and_message
    error = fails(KeyError) { {}.fetch(:missing) }
    assert_equal "key not found: :missing", error.message
    error = fails(ArgumentError) do |world|
      world.host("api.example") { |server| server.http(80) { raise ArgumentError, "of the server" } }
      Net::HTTP.get(URI("http://api.example/"))
    end
    assert_equal "of the server", error.message
  end

  # A failed assertion is no StandardError.
  def test_failures_of_the_worlds_own_blocks
    {"server" => ->(world, wrong) { world.host("a.example") { |host| host.tcp(80) { wrong.call } } },
     "task" => ->(world, wrong) { world.start(&wrong) },
     "switch" => ->(world, wrong) { world.at_switches { wrong.call } }}.each do |place, fault|
      went_on = false
      error = fails(Minitest::Assertion) do |world|
        fault.call(world, -> { flunk(place) })
        (place == "server") ? TCPSocket.new("a.example", 80).read : sleep(1)
        sleep 1
        went_on = true
      end
      assert_equal [place, 7, false], [error.message, error.seed, went_on]
      refute_match(/refuses to end/, @said)
    end
  end

  # Whatever the world's tasks are about to do, the end of the code under test ends them.
  def test_an_end_at_any_moment
    run_world(seeds: 1..200) do |world|
      world.host("a.example") { |host| host.tcp(80) { |socket| socket.read } }
      sockets = Array.new(5) { TCPSocket.new("a.example", 80) }
      sockets.sample(random: world.random).write("x")
    end
  end

  def test_the_world_exits
    fails(SystemExit) do |world|
      world.start { exit(3) }
      sleep 2
    end
  end

  # A cancellation, a collection, and an exception that another thread would raise, at any moment.
  def test_what_happens_at_switches
    ends = Hash.new(0)
    moments = Array.new(2) do
      run_world(seeds: 1..50) do |world|
        cancelled = Heddle.spawn { 20.times { sleep(world.draw(0.0..0.1)) } && :whole }
        interrupted = Heddle.spawn { interruptible(world) }
        world.at_switches(0.01) { GC.start }
        world.at_switches(0.01) { cancelled.cancel }
        world.at_switches(0.01) { world.interrupt(interrupted, KeyError.new("now")) }
        ends[cancelled.wait.status] += 1
        ends[interrupted.value] += 1
      end
    end
    assert_equal(*moments)
    assert_operator ends[:completed], :>, 10, ends.inspect
    %i[cancelled whole_after_all interrupted].each { |name| assert_operator ends[name], :>, 2, ends.inspect }
  end

  def interruptible(world)
    20.times { sleep(world.draw(0.0..0.1)) }
    :whole_after_all
  rescue KeyError
    :interrupted
  end

  def test_a_moment_is_the_same_each_time
    seen = Array.new(2) do
      seen = []
      run_world do |world|
        world.at_switches { |number| seen << [number, world.now] }
        3.times { |seconds| Heddle.spawn { sleep(seconds) } }
        sleep 10
      end
      seen
    end
    assert_equal(*seen)
    assert_equal (1..seen.first.size).to_a, seen.first.map(&:first)
    assert_in_delta 10, seen.first.last.last, 0.001
  end

  def test_what_a_block_at_switches_may_not_do
    error = fails(Heddle::Simulation::Error) do |world|
      world.at_switches { sleep 1 }
      sleep 2
    end
    assert_match(/must not wait/, error.message)
    fails(KeyError) do |world|
      world.at_switches { {}.fetch(:missing) }
      sleep 2
    end
    over = nil
    run_world do |world|
      assert_raises(ArgumentError) { world.at_switches(0.1) }
      over = world
    end
    assert_raises(Heddle::Simulation::Error) { over.at_switches { nil } }
    assert_equal(1, Heddle.run { [1, sleep(0.001)].first })
  end

  # Of many things that go wrong, two together are one too many.
  def test_the_shortest_script_of_faults
    log = StringIO.new
    error = fails(RuntimeError, shrink: true, trace: log) do |world|
      world.host("api.example") { |server| server.http(80) { "ok" } }
      world.link("api.example", loss: 0.2)
      20.times { Net::HTTP.get(URI("http://api.example/")) }
      wrong = Array.new(100) { |number| (number % 10 == 3) && world.fault?(0.5, "disk full") }.count(&:itself)
      raise "twice" if wrong >= 2
    end
    assert_equal "twice", error.message
    assert_equal 2, error.faults.size
    assert(error.faults.all?(/\Adisk full \(\d+\), at [\d.]+ s\z/))
    assert_match(/fails with 2 of \d\d+ faults:\ndisk full/, @said)
    assert_operator log.string.scan("disk full").size, :>=, 2
  end

  def test_what_fails_without_any_fault
    error = fails(KeyError, shrink: true) do |world|
      world.host("api.example") { |server| server.http(80) { "ok" } }
      world.link("api.example", loss: 0.5)
      Net::HTTP.get(URI("http://api.example/"))
      {}.fetch(:missing)
    end
    assert_empty error.faults
    assert_match(/fails with 0 of \d+ faults/, @said)
  end

  def test_what_goes_wrong_is_in_the_error
    error = fails(Errno::ECONNRESET) do |world|
      world.host("api.example", "10.1.2.3") { |server| server.tcp(80) { |socket| socket.read } }
      world.link("api.example", reset: 1)
      socket = TCPSocket.new("api.example", 80)
      socket.write("x")
      socket.read
    end
    assert_equal ["10.1.2.3:80 #1 > 1 reset"], error.faults.map { |line| line.sub(/, at [\d.]+ s\z/, "") }
  end

  def test_the_environment_chooses_the_seeds
    extend Heddle::Simulation::Helper

    {nil => [1, 2], "55" => [55], "7..9" => [7, 8, 9]}.each { |text, seeds| assert_equal seeds, seeds_of(text) }
    assert_raises(ArgumentError) { seeds_of("many") }
  end

  def seeds_of(text)
    before, ENV["HEDDLE_SIMULATION_SEEDS"] = ENV.fetch("HEDDLE_SIMULATION_SEEDS", nil), text
    [].tap { |seen| simulate(seeds: 2) { |world| seen << world.seed } }
  ensure
    ENV["HEDDLE_SIMULATION_SEEDS"] = before
  end

  def test_threads_and_forks
    assert_match(/Heddle\.spawn/, fails(Heddle::Simulation::Error) { Thread.new { nil } }.message)
    assert_match(/forks/, fails(Heddle::Simulation::Error) { fork }.message)
    [-> { system("true") }, -> { `true` }, -> { Process.spawn("true") }, -> { IO.popen("true") }].each do |command|
      assert_match(/runs a command/, fails(Heddle::Simulation::Error) { command.call }.message)
    end
    run_world { assert_equal 3, Heddle.offload { 3 } }
    assert_equal 1, Thread.new { 1 }.value
    assert_equal "yes\n", `echo yes`
  end

  # As Ctrl-C may: the code under test would take it for a failed connect.
  def test_an_exception_while_the_world_answers
    error = fails(Interrupt) do |world|
      world.host("api.example", "10.1.2.3")
      world.network.define_singleton_method(:connect) { |*| raise Interrupt, "now" }
      begin
        TCPSocket.new("10.1.2.3", 80)
      rescue SystemCallError
        sleep 1
      end
    end
    assert_equal "now", error.message
  end

  # The loop of another thread would move the clock, or read it.
  def test_runs_in_other_threads
    ending = Thread::Queue.new
    other = Thread.new { Heddle.run { ending.pop } }
    Thread.pass until other.stop?
    assert_match(/run in #<Thread/, assert_raises(Heddle::Simulation::Error) { run_world { nil } }.message)
    ending << true
    other.join
    begun = Thread::Queue.new
    other = Thread.new do
      begun.pop
      Heddle.run { nil }
    rescue Heddle::Simulation::Error => error
      error
    end
    run_world do
      begun << true
      nil while other.alive?
    end
    assert_match(/in another one/, other.value.message)
  end

  def test_two_threads_at_once
    begun = Thread::Queue.new
    other = Thread.new do
      begun.pop
      Heddle::Simulation.run(seeds: 1) { nil }
    rescue Heddle::Simulation::Error => error
      error
    end
    run_world do
      begun << true
      nil while other.alive? # Ruby lets the other thread run
    end
    assert_match(/one at a time/, other.value.message)
  end

  def test_bad_arguments
    {{seeds: 0} => ArgumentError, {seeds: [1.5]} => TypeError, {seeds: ["1"]} => TypeError,
     {time_limit: 0} => ArgumentError, {time_limit: Float::INFINITY} => ArgumentError,
     {time_limit: Complex(1)} => ArgumentError, {trace: 5} => TypeError}.each do |options, kind|
      assert_raises(kind, options.inspect) { Heddle::Simulation.run(**options) { nil } }
    end
    assert_raises(ArgumentError) { Heddle::Simulation.run(seeds: 1) }
    run_world do |world|
      world.host("api.example")
      assert_raises(ArgumentError) { world.link("other.example") }
      assert_raises(ArgumentError) { world.link("api.example", latency: -1) }
      assert_raises(ArgumentError) { world.link("api.example", latency: -1..1) }
      assert_raises(ArgumentError) { world.link("api.example", loss: 2) }
      assert_raises(TypeError) { world.link("api.example", latency: "1") }
      [-> { world.host(:api) }, -> { world.name(nil) }, -> { world.unix(5) { nil } }, -> { world.host("a", 1) },
        -> { world.interrupt(nil, KeyError.new) }].each { |wrong| assert_raises(TypeError, &wrong) }
      [-> { world.at_switches(7) { nil } }, -> { world.fault?(nil, "x") }, -> { world.start },
        -> { world.name("a.example", "b.example") }, -> { world.host("a", "10.0.0.0/8") }].each do |wrong|
        assert_raises(ArgumentError, &wrong)
      end
      assert_raises(Heddle::Simulation::Error) { Heddle::Simulation.run(seeds: 1) { nil } }
    end
    assert_raises(Heddle::Simulation::Error) { Heddle.run { Heddle::Simulation.run(seeds: 1) { nil } } }
  end
end
