# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# A process that forks while its loop runs: the child has no scheduler and leaves the parent's descriptors and ring
# alone; the parent continues.
class ForkTest < Minitest::Test
  include LoopHelpers

  def test_a_child_has_no_scheduler_and_works_normally
    out = assert_child(<<~RUBY)
      Heddle.run do
        reader, writer = UNIXSocket.pair
        waiter = Heddle.spawn { reader.readpartial(10) }
        out, into = IO.pipe
        pid = fork do
          begin
            sleep(0.001)
            r, w = IO.pipe
            w << "piped"
            into.write([Fiber.scheduler.inspect, Fiber.current_scheduler.inspect, r.readpartial(10)].join(","))
          ensure
            exit!(0)
          end
        end
        into.close
        puts out.read
        Process.wait(pid)
        writer << "parent"
        puts waiter.value
      end
    RUBY
    assert_equal "nil,nil,piped\nparent\n", out
  end

  def test_a_child_can_run_its_own_loop
    out = assert_child(<<~RUBY)
      Heddle.run do
        reader, writer = UNIXSocket.pair
        waiter = Heddle.spawn { reader.readpartial(10) }
        out, into = IO.pipe
        pid = fork do
          value = Heddle.run do
            r, w = UNIXSocket.pair
            task = Heddle.spawn { r.readpartial(10) }
            w << "child"
            sleep(0.001)
            task.value
          end
          into << value
          exit!(0)
        end
        into.close
        puts out.read
        Process.wait(pid)
        writer << "parent"
        puts waiter.value
      end
    RUBY
    assert_equal "child\nparent\n", out
  end

  # There the task's fiber is a copy that nobody runs.
  def test_a_child_that_reads_the_value_of_its_parents_task
    out = assert_child(<<~RUBY)
      Heddle.run do
        task = Heddle.spawn(name: "parent's") { sleep(0.05) && 7 }
        done = Heddle.spawn { 6 }
        pid = fork do
          puts done.value
          [-> { task.value }, -> { task.wait(60) }].each do |ask|
            ask.call
          rescue Heddle::SchedulerClosed => error
            puts error.message[/"parent's".*/]
          end
          exit!(0)
        end
        Process.wait(pid)
        puts task.value
      end
    RUBY
    refusal =
      %("parent's" waiting> cannot end in this process: its scheduler was closed, or belongs to the parent process)
    assert_equal [6, refusal, refusal, 7].join("\n"), out.chomp
  end

  # The child closes what it inherited, runs its at_exit blocks, collects its garbage: none of it reaches the parent's
  # side of the kernel.
  def test_a_childs_normal_exit_does_not_disturb_the_parent
    out = assert_child(<<~RUBY)
      at_exit { $stdout.flush }
      Heddle.run do
        pairs = Array.new(20) { UNIXSocket.pair }
        waiters = pairs.map { |reader, _| Heddle.spawn { reader.readpartial(10) } }
        sleep(0.001)
        10.times do
          pid = fork do
            pairs.flatten.each(&:close)
            pairs.clear
            waiters.clear
            3.times { GC.start }
          end
          Process.wait(pid)
          abort $?.inspect unless $?.success?
        end
        pairs.each_with_index { |(_, writer), index| writer << index.to_s }
        puts waiters.map(&:value).join(" ")
      end
    RUBY
    assert_equal "#{[*0...20].join(" ")}\n", out
  end

  # Without a block, the code after fork runs in both.
  def test_a_child_that_continues_after_fork_ends_quietly
    outcome = in_child(<<~'RUBY')
      PARENT = $$
      Heddle.run do
        Heddle.spawn { sleep(0.05) && $stdout.syswrite("task of #{$$ == PARENT}\n") } # at once: two processes write
        pid = fork
        if pid
          Process.wait(pid)
          $stdout.syswrite("child #{$?.success? ? "ended" : $?.inspect}\n")
        else
          sleep(0.001)
          $stdout.syswrite("in the child\n")
        end
      end
      puts "after" if $$ == PARENT
    RUBY
    assert_predicate outcome.status, :success?, outcome.err
    assert_equal "", outcome.err
    assert_equal ["after", "child ended", "in the child", "task of true"], outcome.out.lines(chomp: true).sort
  end

  # With the status that it would have without a loop, and after its at_exit blocks.
  def test_a_child_that_exits_by_itself_after_fork
    ends = {"exit(3)" => 3, "raise('in the child')" => 1, "abort('in the child')" => 1, "nil" => 0}
    places = ["pid = fork || %s", "pid = Heddle.spawn { fork || %s }.value",
      "pid = nil; Fiber.schedule { pid = fork || %s }",
      "pid = Heddle.run { fork || %s }", "pid = Heddle::FiberPool.new(1).map([1]) { fork || %s }.first"]
    ends.to_a.product(places.first(2)).concat(ends.first(1).product(places.drop(2))).each do |(code, status), place|
      outcome = in_child(<<~RUBY)
        PARENT = $$
        at_exit { puts "at_exit" unless $$ == PARENT }
        Heddle.run do
          Heddle.spawn { sleep(0.02); puts "a task ran in the child" unless $$ == PARENT }
          #{place % code}
          if $$ == PARENT
            puts Process.wait2(pid).last.exitstatus
          end
        end
      RUBY
      assert_equal ["at_exit", status.to_s], outcome.out.lines(chomp: true), "#{place % code}: #{outcome.err}"
      assert_predicate outcome.status, :success?
      assert_equal code.include?("child"), outcome.err.include?("in the child"), outcome.err
    end
  end

  # A signal handler runs in a fiber that waits, and the child returns into that wait.
  def test_a_fork_in_a_trap_handler
    {"exit(3)" => 3, "nil" => 1}.each do |code, status|
      out = assert_child(<<~RUBY)
        PARENT = $$
        pid = nil
        trap("USR1") { pid = fork || #{code} }
        Heddle.run do
          waiter = Heddle.spawn { sleep(0.05) && puts(PARENT == $$) }
          Thread.new { Process.kill(:USR1, $$) }
          sleep(0.001) until pid
          puts Process.wait2(pid).last.exitstatus
        end
        puts "continued"
      RUBY
      *tasks, last = out.lines(chomp: true)
      assert_equal [[status.to_s, "true"], "continued"], [tasks.sort, last], code
    end
  end

  # The child unwinds a wait for several descriptors, while the kernel's side of the loop is gone.
  def test_a_fork_in_a_trap_handler_while_the_thread_selects
    out = assert_child(<<~RUBY)
      pid = nil
      trap("USR1") { pid = fork }
      reader, = UNIXSocket.pair
      other, writer = UNIXSocket.pair
      parent = Process.pid
      Fiber.set_scheduler(scheduler = Heddle::Scheduler.new)
      Thread.new { sleep(0.01); Process.kill(:USR1, parent); sleep(0.05); writer << "x" }
      begin
        scheduler.io_select([reader, other], [], nil, 5)
      rescue Heddle::SchedulerClosed
        exit!(3)
      end
      exit!(4) unless Process.pid == parent
      puts Process.wait2(pid).last.inspect[/exit \\d+|SIG\\w+/]
    RUBY
    assert_equal "exit 3\n", out
  end

  def test_a_child_that_leaves_a_timeout_block
    out = assert_child(<<~RUBY)
      require "timeout"
      Heddle.run do
        Timeout.timeout(5) do
          pid = Timeout.timeout(5) { fork }
          sleep(0.001)
          exit!(Thread.new { Heddle.run { sleep(0.001) && 7 } }.value) unless pid
          puts Process.wait2(pid).last.exitstatus
        end
        begin
          Timeout.timeout(0.005) { sleep }
        rescue Timeout::Error
          puts "timed out"
        end
      end
    RUBY
    assert_equal ["7", "timed out"], out.lines(chomp: true)
  end

  # Process.daemon forks without Process._fork, and continues in the child.
  def test_daemon_continues_in_the_child
    Tempfile.create("heddle") do |file|
      assert_child(<<~RUBY)
        path = #{file.path.dump}
        Heddle.run do
          Heddle.spawn { sleep(30); File.write(path, "a task of the parent ran") }
          Process.daemon(true, true)
          begin
            sleep(0.001)
            value = Thread.new { Heddle.run { Heddle.spawn { sleep(0.001) && :ran }.value } }.value
            File.write(path, "daemon \#{value}")
          rescue Exception => error
            File.write(path, error.full_message)
          end
          exit!(0)
        end
      RUBY
      text = wait_until(what: "the daemon's file") { (text = File.read(file.path)) && !text.empty? && text }
      assert_equal "daemon ran", text
    end
  end

  # The thread that keeps the deadlines of plain threads belongs to the parent.
  def test_a_daemon_keeps_the_deadline_that_it_is_under
    Tempfile.create("heddle") do |file|
      assert_child(<<~RUBY)
        text = begin
          Heddle.deadline(1) { Process.daemon(true, true) && sleep(20) && "slept on" }
        rescue Heddle::DeadlineExceeded
          "gave up"
        end
        File.write(#{file.path.dump}, text)
        exit!(0)
      RUBY
      text = wait_until(30, what: "the daemon's file") { (text = File.read(file.path)) && !text.empty? && text }
      assert_equal "gave up", text
    end
  end

  # The loop of the parent must not take what is due for the child's own code, which waits without a scheduler.
  WAYS_TO_FORK = {
    "a task" => "Heddle.run { parent_of(fork(&block)) }",
    "a nested fiber" => "Heddle.run { Fiber.new { parent_of(fork(&block)) }.resume }",
    "a thread beside a run" => <<~RUBY,
      loops = Thread.new { Heddle.run { sleep } }
      Thread.pass until loops.stop?
      parent_of(fork(&block))
    RUBY
    "a child that becomes a daemon" => "Heddle.run { parent_of(fork { Process.daemon(true, true) && block.call }) }"
  }.freeze

  def test_deadlines_and_timeouts_in_children
    WAYS_TO_FORK.each do |name, code|
      assert_equal "Heddle::DeadlineExceeded Timeout::Error Heddle::DeadlineExceeded", assert_child(<<~RUBY), name
        require "heddle/timeout"
        def parent_of(pid)
          Process.wait(pid)
          OUT.last.close
          print OUT.first.read
          $stdout.flush
          exit!(0)
        end
        OUT = IO.pipe
        define_method(:forks) { |&block| #{code} }
        forks do
          silent, = UNIXSocket.pair
          ways = [-> { Heddle.deadline(0.1) { silent.readpartial(1) } }, -> { Timeout.timeout(0.1) { sleep(20) } },
            -> { Heddle.run { Heddle.deadline(0.1) { silent.readpartial(1) } } }]
          text = ways.map { |way| begin; way.call; rescue Exception => error; error.class.name; end }
          OUT.last.write(text.join(" "))
        ensure
          exit!(0)
        end
      RUBY
    end
  end

  # A ring that a child holds open keeps its polls, and a poll keeps its socket open.
  def test_a_close_reaches_the_peer_beside_a_child_that_lives_on
    assert_equal "another thread: nil, a task: nil", assert_child(<<~RUBY)
      server = TCPServer.new("127.0.0.1", 0)
      CHILD = -> { fork { sleep(60); exit!(0) } }
      print({"another thread" => false, "a task" => true}.map { |who, in_task|
        socket = peer = pid = nil
        begun, forked = Queue.new, Queue.new
        loop_thread = Thread.new do
          Heddle.run do
            begun << true
            forked.pop
            pid = CHILD.call if in_task
            socket = TCPSocket.new("127.0.0.1", server.addr[1])
            peer = server.accept
            reader = Heddle.spawn { socket.readpartial(1) }
            sleep(0.01)
            reader.cancel
          end
        end
        begun.pop
        pid = CHILD.call unless in_task
        forked << true
        loop_thread.join
        socket.close
        seen = peer.wait_readable(10) ? peer.read_nonblock(1, exception: false) : :nothing
        Process.kill(:KILL, pid)
        Process.wait(pid)
        "\#{who}: \#{seen.inspect}"
      }.join(", "))
    RUBY
  end

  # fork(2) by a C extension: Ruby does not see it.
  def test_a_fork_by_a_c_extension
    out = assert_child(<<~RUBY)
      require #{File.expand_path("../support/native_calls", __dir__).dump}
      Heddle.run do
        reader, writer = UNIXSocket.pair
        waiter = Heddle.spawn { reader.readpartial(10) }
        sleep(0.001)
        pid = NativeCalls.fork
        Process.exit!(0) if pid.zero?
        Process.wait(pid)
        writer << "parent"
        puts waiter.value
      end
    RUBY
    assert_equal "parent\n", out
  end

  def test_the_child_leaves_the_parents_descriptors_open
    assert_child(<<~RUBY)
      Heddle.run do
        3.times do
          pid = fork { Heddle.run { sleep(0.001) } }
          Process.wait(pid)
          abort $?.inspect unless $?.success?
        end
        value = Heddle.spawn { sleep(0.01) && 1 }.value
        r, w = UNIXSocket.pair
        task = Heddle.spawn { r.readpartial(1) }
        w << "x"
        abort unless task.value == "x" && value == 1
      end
    RUBY
  end

  def test_fork_in_many_tasks_at_once
    out = assert_child(<<~RUBY)
      statuses = Heddle.run do
        Array.new(20) do |index|
          Heddle.spawn do
            pid = fork { exit!(index) }
            sleep(0)
            Process.wait(pid)
            $?.exitstatus
          end
        end.map(&:value)
      end
      puts statuses == [*0...20]
    RUBY
    assert_equal "true\n", out
  end
end
