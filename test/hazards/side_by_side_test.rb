# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Several loops in one process, other schedulers beside them, Ractors, loops that nobody closes.
class SideBySideTest < Minitest::Test
  include LoopHelpers

  # RUBY_MN_THREADS=1 (Ruby >= 3.3) lets threads change their native threads, all but the main one.
  MIGRATING = <<~RUBY
    work = lambda do
      Heddle.run do
        Array.new(30) do |index|
          reader, writer = UNIXSocket.pair
          echo = Heddle.spawn { reader.readpartial(10) }
          Heddle.spawn { sleep(0.001) && writer.write(index.to_s) }
          Thread.new { sleep(0.0005) }.join
          echo.value.to_i.tap { [reader, writer].each(&:close) }
        end.sum
      end
    end
  RUBY

  def test_a_loop_in_the_main_thread_beside_threads_that_migrate
    # Ruby 3.4 may crash where such a process ends just behind one of its threads: see doc/limits.md.
    out = assert_child("#{MIGRATING}\n$stdout.syswrite(work.call)\nexit!(true)", env: {"RUBY_MN_THREADS" => "1"})
    assert_equal "435", out
  end

  def test_loops_in_threads_that_migrate
    skip "Ruby 3.4 crashes when fibers of such threads wait: see doc/limits.md" if ruby_at_least?("3.4")
    out = assert_child("#{MIGRATING}\nputs Array.new(8) { Thread.new(&work) }.map(&:value).uniq",
      env: {"RUBY_MN_THREADS" => "1"})
    assert_equal "435\n", out
  end

  def test_threads_that_run_their_own_loops
    values = Array.new(8) do |index|
      Thread.new do
        Heddle.run do
          Array.new(50) { |n|
            Heddle.spawn { with_pair { |r, w| w.write(n.to_s) && sleep(0.001) && r.readpartial(9).to_i * index } }
          }.sum(&:value)
        end
      end
    end.map(&:value)
    assert_equal Array.new(8) { |index| 1225 * index }, values
  end

  def test_loops_that_come_and_go_in_threads
    GC.start # what other tests left
    before = descriptor_count
    4.times { Array.new(25) { Thread.new { Heddle.run { sleep(0.001) } } }.each(&:join) }
    assert_operator descriptor_count, :<=, before
  end

  def test_a_thousand_runs
    Heddle.run {} # what is allocated once
    GC.start # what other tests left
    before = descriptor_count
    total = 0
    1000.times { |index| total += Heddle.run { Heddle.spawn { sleep(0) && index }.value } }
    assert_equal 499_500, total
    assert_operator descriptor_count, :<=, before
  end

  # A thread under another scheduler exchanges work with one under ours.
  def test_another_scheduler_in_another_thread
    load_async
    there, back = Thread::Queue.new, Thread::Queue.new
    foreign = Thread.new do
      Async do |parent|
        3.times { parent.async { while (item = there.pop) do back << item * 2 end } }
      end
      :ended
    end
    Heddle.run do
      got = Heddle.spawn { Array.new(30) { back.pop }.sort }
      30.times { |index| there << index && sleep(0) }
      assert_equal Array.new(30) { |index| index * 2 }, got.value
      there.close
      assert_equal :ended, foreign.value
    end
  end

  def test_a_socket_shared_with_another_scheduler
    load_async
    with_pair do |ours, theirs|
      foreign = Thread.new { Async { 20.times { theirs.send(theirs.recv(100).upcase, 0) } && :ended }.wait }
      Heddle.run do
        20.times do
          ours.write("ping")
          assert_equal "PING", ours.readpartial(100)
        end
        assert_equal :ended, foreign.value
      end
    end
  end

  # Threads leave the close to their scheduler; here nobody closes it: it is used without being set.
  def test_a_scheduler_collected_without_close
    out = assert_child(<<~RUBY)
      def leave_some
        50.times do
          scheduler = Heddle::Scheduler.new
          Thread.new { scheduler.kernel_sleep(0.0001) }.join
        end
        nil
      end
      before = Dir.children("/proc/self/fd").size
      leave_some
      leave_some
      5.times { GC.start; Array.new(1000) { "x" * 100 } }
      after = Dir.children("/proc/self/fd").size
      puts after - before < 60
      puts Heddle.run { Heddle.spawn { sleep(0.001) && :works }.value }
    RUBY
    assert_equal %w[true works], out.split
  end

  # Until they are swept, they are known to those that list all loops: a dump, say.
  def test_schedulers_that_were_collected_are_not_listed
    assert_child(<<~RUBY)
      listed = []
      300.times do
        3.times { Thread.new { Heddle::Scheduler.new.kernel_sleep(0) }.join }
        listed << Heddle::Scheduler.open
        listed.shift if listed.size > 20
        Array.new(300) { +"x" }
        listed.each { |all| all.each { |scheduler, thread| [scheduler.class, thread.status] } }
      end
    RUBY
  end

  # With a fiber parked in it: the fiber keeps it alive or goes with it; nothing crashes.
  def test_a_scheduler_left_with_a_parked_fiber
    assert_child(<<~RUBY)
      30.times do
        scheduler = Heddle::Scheduler.new
        reader, = IO.pipe
        Thread.new do
          Fiber.new(blocking: false) { scheduler.fiber { scheduler.io_wait(reader, IO::READABLE, 30) } }.resume
        end.join
        GC.start
      end
      GC.stress = true
      Heddle.run { Heddle.spawn { sleep(0.001) }.value }
    RUBY
  end

  # Ruby lets only the main Ractor call into a C extension that does not declare itself safe; ours does not, since the
  # lock of all threads protects the list of its loops.
  def test_other_ractors_are_refused
    out = assert_child(<<~RUBY)
      Warning[:experimental] = false
      [Ractor.new { Heddle::Scheduler.new }, Ractor.new { Heddle.run { 1 } }].each do |ractor|
        ractor.respond_to?(:value) ? ractor.value : ractor.take
        puts "allowed"
      rescue Ractor::RemoteError => error
        puts error.cause.class, error.cause.message
      end
      puts Heddle.run { Heddle.spawn { sleep(0.001) && :main }.value }
    RUBY
    refused, _, told, message, ran = out.lines(chomp: true)
    assert_equal %w[Ractor::UnsafeError Ractor::UnsafeError main], [refused, told, ran]
    assert_match(/\AHeddle runs in the main Ractor only: call Heddle.run there/, message)
  end

  # Work that needs no scheduler continues in a Ractor beside a loop.
  def test_a_ractor_beside_a_loop
    out = assert_child(<<~RUBY)
      Warning[:experimental] = false
      ractor = Ractor.new { (1..1000).sum }
      puts Heddle.run { Heddle.spawn { sleep(0.005) && :looped }.value }
      puts ractor.respond_to?(:value) ? ractor.value : ractor.take
    RUBY
    assert_equal %w[looped 500500], out.split
  end

  # What Heddle replaces of Ruby's own is also called in other Ractors, by Ruby's libraries: Timeout's thread in each
  # Ractor waits for a condition.
  # In a Ractor, Ruby's own Mutex#sleep answers with nil or with 0 by chance when its time is over.
  CALLS_IN_A_RACTOR = <<~'RUBY'
    require "socket"
    require "timeout"
    $VERBOSE = nil
    ractor = Ractor.new do
      calls = {
        condition: lambda do
          Thread::Mutex.new.then { |it| it.synchronize { Thread::ConditionVariable.new.wait(it, 0.001) } }.to_i
        end,
        mutex: -> { Thread::Mutex.new.lock.sleep(0.001).to_i },
        timeout: -> { Timeout.timeout(0.01) { sleep(5) } },
        pass: -> { Thread.pass },
        stop: -> { Thread.new { Thread.stop }.then { |it| Thread.pass until it.stop?; it.run.join } },
        join: -> { Thread.new { 1 }.join(5) },
        names: -> { Addrinfo.getaddrinfo("127.0.0.1", 80, nil, :STREAM).map(&:ip_port) },
        socket_names: -> { Socket.getaddrinfo("127.0.0.1", 80, nil, :STREAM).size },
        name_info: -> { Addrinfo.tcp("127.0.0.1", 80).getnameinfo(Socket::NI_NUMERICHOST | Socket::NI_NUMERICSERV) },
        socket_name_info: -> { Socket.getnameinfo(["AF_INET", 80, "127.0.0.1"], 3) },
        address: -> { UDPSocket.new.tap { |it| it.bind("127.0.0.1", 0) }.addr(true).first },
        fiber_raise: -> { Fiber.new { Fiber.yield }.tap(&:resume).raise(IOError) },
        fiber_kill: -> { Fiber.new { Fiber.yield }.tap(&:resume).kill.alive? },
        fiber_transfer: -> { Fiber.new { 7 }.transfer },
        system_calls: -> { IO.pipe.then { |r, w| w.syswrite("x") && r.sysread(1) && [r, w].each(&:close).size } },
        select: -> { IO.pipe.then { |r, w| [IO.select([r], [w], nil, 1), select([r], nil, nil, 0)].compact.size } },
        child: -> { system("true") }
      }
      calls.to_h do |name, call|
        value = call.call
        [name, value.inspect[0, 40].sub(/0x\h+/, "")]
      rescue Exception => error
        [name, error.class.name]
      end
    end
    (ractor.respond_to?(:value) ? ractor.value : ractor.take).each { |name, value| puts "#{name}: #{value}" }
    $stdout.flush
    exit!(0)
  RUBY

  def test_rubys_own_methods_in_another_ractor
    stock, ours = [false, true].map { |heddle| in_child(CALLS_IN_A_RACTOR, heddle: heddle) }
    assert_equal stock.out, ours.out
    assert_equal stock.err, ours.err
    assert_match(/^condition: /, stock.out)
  end

  # In other Ractors Timeout stays Ruby's own, which not every version of it can do.
  # Their methods refuse to run there, but not Class#allocate.
  def test_ractors_allocate_semaphores
    out = assert_child(<<~RUBY)
      Warning[:experimental] = false
      permits = -> { Heddle.metrics["heddle.pool.permits"].values.fetch({pool: "Heddle::Semaphore"}, 0) }
      before = permits.call
      ractors = 4.times.map do
        Ractor.new do
          20_000.times { Heddle::Semaphore.allocate }
          GC.start
          1
        end
      end
      ractors.each { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
      GC.start
      print permits.call - before
    RUBY
    assert_equal "0", out
  end

  def test_timeouts_in_another_ractor
    script = <<~RUBY
      Warning[:experimental] = false
      require "timeout"
      %s
      ractor = Ractor.new do
        calls = [-> { Timeout.timeout(30) { 7 } }, -> { Timeout.timeout(0) { 8 } }, -> { Timeout.timeout(nil) { 9 } },
          -> { Timeout.timeout(0.01) { sleep } }, -> { Timeout.timeout(-1) { 1 } }]
        calls.map do |call|
          call.call
        rescue Exception => error
          error.class.name
        end
      end
      p(ractor.respond_to?(:value) ? ractor.value : ractor.take)
      $stdout.flush
      exit!(0)
    RUBY
    stock = in_child(format(script, ""), heddle: false)
    ours = in_child(format(script, 'require "heddle/timeout"'))
    assert_equal stock.out, ours.out
    assert_match(/\A\[/, ours.out)
  end

  # The IO#close that wakes fibers is the same in every Ractor. A number that is closed there is not one that a loop
  # here waits for.
  def test_ractors_close_ios
    out = assert_child(<<~RUBY)
      Warning[:experimental] = false
      Heddle.run do
        reader, writer = IO.pipe
        waiter = Heddle.spawn { reader.read }
        ractor = Ractor.new do
          ends = IO.pipe.each(&:close)
          [ends.map(&:closed?), File.open("/dev/null") { |file| file.read },
            Array.new(1000) { IO.pipe.each(&:close) }.size]
        end
        p(ractor.respond_to?(:value) ? ractor.value : ractor.take)
        writer.close
        p waiter.value
      end
    RUBY
    assert_equal ['[[true, true], "", 1000]', '""'], out.lines(chomp: true)
  end

  # Free functions close descriptors and change lists, which the main Ractor may be reading.
  def test_the_main_ractor_frees_what_another_one_sweeps
    out = assert_child(<<~RUBY)
      Warning[:experimental] = false
      drop = ->(count) { count.times { Thread.new { Heddle::Scheduler.new.kernel_sleep(0) }.join } }
      ractor = Ractor.new do
        before = Ractor.receive
        3.times { GC.start }
        Dir.children("/proc/self/fd").size - before
      end
      drop.call(20)
      ractor.send(before = Dir.children("/proc/self/fd").size)
      swept = ractor.respond_to?(:value) ? ractor.value : ractor.take
      drop.call(5)
      GC.start
      puts swept, Dir.children("/proc/self/fd").size < before
    RUBY
    assert_equal %w[0 true], out.split
  end

  private

  def load_async
    require "async"
    IO.define_method(:timeout) {} unless IO.method_defined?(:timeout) # async calls it also on Ruby 3.1, which lacks it
  end
end
