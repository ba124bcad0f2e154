# frozen_string_literal: true

require "test_helper"
require "minitest/mock"
require "support/insight_helpers"
require "socket"

# heddle ps while the process is stuck, forks, belongs to somebody else; and peers that misbehave on either side.
class InsightHazardsTest < Minitest::Test
  include InsightHelpers

  NOBODY = 65_534

  # ---- a process that is stuck

  def test_c_code_that_keeps_the_gvl
    looking_into(<<~RUBY, env: {"RUBYLIB" => "#{ROOT}/test"}) do |pid|
      require "support/native_calls"
      require "io/nonblock"
      mine, theirs = UNIXSocket.pair
      mine.nonblock = false
      Heddle.run do
        queue = Thread::Queue.new
        Heddle.spawn(name: "other") { queue.pop }
        Heddle.spawn(name: "stuck") { sleep 0.01; puts "ready"; NativeCalls.recv_holding_the_lock(mine.fileno) }
        sleep
      end
    RUBY
      text = heddle("ps", pid)
      assert_match(/^Ruby code did not answer in time/, text)
      assert_match(/^  task \d+ "stuck" has run for .* on main thread$/, text)
      assert_match(/ running .* "stuck" /, text)
      assert_match(/ waiting .* "other" +another fiber or thread$/, text)
      assert_equal "late", snapshot(pid)["reason"] # again
      assert_match(/└─ /, heddle("tree", pid))
      assert_match(/^task \d+ "stuck" running for/, heddle("why", pid, task(snapshot(pid), "stuck")["task"]))
    end
  end

  def test_ruby_code_that_computes
    looking_into(<<~RUBY) do |pid|
      def a_place_to_compute = loop { }
      Heddle.run do
        Heddle.spawn(name: "computes") { sleep 0.01; puts "ready"; a_place_to_compute }
        sleep
      end
    RUBY
      found = snapshot(pid, "ps", "--wait", 20) { |one| one["ruby"] && task(one, "computes")["backtrace"] }
      computes = task(found, "computes")
      assert_equal "running", computes["state"]
      assert_includes computes["backtrace"].join("\n"), "a_place_to_compute"
      assert_equal computes["task"], found["loops"].first["runs"]
    end
  end

  def test_switched_on_by_several_threads_at_once
    looking_into(<<~RUBY, insight: false) do |pid, out|
      paths = 4.times.map { Thread.new { Heddle.insight } }.map(&:value)
      puts "paths \#{paths.uniq.size}", "ready"
      Heddle.run { Heddle.spawn(name: "sleeper") { sleep }; sleep }
    RUBY
      assert_includes File.read(out.path), "paths 1\n"
      assert_equal 1, sockets.size
      assert(snapshot(pid) { |one| one["ruby"] && task(one, "sleeper") })
    end
  end

  # Between the moment when it listens no more and the one when it removes its socket.
  def test_another_process_removes_its_socket_meanwhile
    assert_equal "nil\n", assert_child(<<~RUBY, env: {"XDG_RUNTIME_DIR" => @runtime})
      Heddle.insight
      File.singleton_class.prepend(Module.new { def socket?(path) = super.tap { unlink(path) } })
      p Heddle.insight(false)
    RUBY
  end

  def test_its_owner_removes_a_socket_meanwhile
    folder = Heddle::Insight::Folder.new("#{@runtime}/heddle")
    dead = folder.bind(Process.pid) { |path| UNIXServer.new(path).close }
    tries = 0
    refuse = lambda do |*|
      File.unlink(dead) if (tries += 1) == 2
      raise Errno::ECONNREFUSED
    end
    Socket.stub(:new, refuse) { assert_nil folder.connect(dead, Heddle::Clock.now) }
    assert_equal 2, tries
  end

  # The lock of a folder is also that of a child which is made while a thread holds it.
  def test_a_child_keeps_no_lock
    folder = Heddle::Insight::Folder.new("#{@runtime}/heddle")
    folder.bind(Process.pid) { |path| UNIXServer.new(path).close }
    child = folder.send(:locked) { fork { sleep } }
    assert_equal :free, folder.send(:locked) { :free }
  ensure
    Process.kill(:KILL, child)
    Process.wait(child)
  end

  def test_switched_off_and_on_again_at_once
    looking_into(<<~RUBY) do |pid|
      10.times { sleep 0.01; Heddle.insight(false); Heddle.insight }
      sleep 0.2
      puts "ready"
      Heddle.run { Heddle.spawn(name: "sleeper") { sleep }; sleep }
    RUBY
      found = snapshot(pid) { |one| task(one, "sleeper") }
      refute_equal "missing", found["reason"]
    end
  end

  # The thread that asks Ruby code is gone: the rest of the answer is there.
  def test_without_its_ruby_thread
    looking_into(<<~RUBY) do |pid|
      Thread.list.find { |thread| thread.name == "heddle insight" }.kill.join
      Heddle.run { Heddle.spawn(name: "sleeper") { sleep }; puts "ready"; sleep }
    RUBY
      assert_match(/^the thread that asks Ruby code has ended.*"sleeper"/m, heddle("ps", pid))
    end
  end

  # Ruby 3.1 would list them, and using one crashes.
  def test_pools_that_gc_is_about_to_sweep
    assert_child(<<~RUBY)
      200.times do
        50.times { Heddle::ResourcePool.new(size: 2) { Object.new } }
        GC.start(immediate_sweep: false)
        Heddle::Pools.all.each(&:inspect)
      end
    RUBY
  end

  # That takes 20 ms for a million objects, in which no other thread runs.
  def test_pools_are_found_without_a_walk_through_all_objects
    assert_equal "true\n", assert_child(<<~RUBY)
      pool = Heddle::FiberPool.new(1)
      ObjectSpace.singleton_class.prepend(Module.new { def each_object(*) = raise("a walk") })
      p Heddle::Pools.all.include?(pool)
    RUBY
  end

  # Ruby 3.1 would corrupt its memory, were they in a WeakMap.
  def test_pools_beside_ractors_that_collect_garbage
    assert_equal "done\n", assert_child(<<~RUBY)
      Warning[:experimental] = false
      ractors = Array.new(2) { Ractor.new { 200_000.times { Object.new } && GC.start } }
      20_000.times { Heddle::Semaphore.new(1) }
      ractors.each { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
      GC.start
      puts "done"
    RUBY
  end

  # Else another user, who owns that folder in /tmp, could keep the program from starting.
  def test_a_folder_that_cannot_be_used_keeps_no_program_from_starting
    Dir.mkdir("#{@runtime}/heddle", 0o777)
    File.chmod(0o777, "#{@runtime}/heddle")
    outcome = in_child("puts :runs", env: {"XDG_RUNTIME_DIR" => @runtime, "HEDDLE_INSIGHT" => "1"})
    assert_equal "runs\n", outcome.out
    assert_match(/heddle ps cannot look into process \d+: .*mode 0700/, outcome.err)
  end

  def test_threads_that_start_and_stop_it_at_once
    looking_into(<<~RUBY, insight: false) do |pid|
      20.times do
        Array.new(4) { Thread.new { Heddle.insight } }.each(&:join)
        found = Dir.glob(File.join(Heddle::Insight::Folder.own, "*.sock"))
        raise "these listen: \#{found}" if found.size != 1
        Heddle.insight(false)
      end
      Heddle.insight
      Heddle.run { puts "ready"; sleep }
    RUBY
      assert_equal 1, sockets.size
      assert(snapshot(pid) { |found| found["ruby"] })
    end
  end

  # ---- forks

  def test_a_child_answers_for_itself
    looking_into(<<~RUBY) do |pid, out|
      child = fork do
        Heddle.run { Heddle.spawn(name: "of the child") { sleep }; puts "child \#{$$}"; sleep }
      end
      Heddle.run { Heddle.spawn(name: "of the parent") { sleep }; sleep 0.01; puts "ready"; sleep }
    RUBY
      child = Integer(wait_until { File.read(out.path)[/child (\d+)/, 1] })
      assert task(snapshot(child) { |found| task(found, "of the child") }, "of the child")
      refute_includes heddle("ps", child), "of the parent"
      both = heddle("ps", pid)
      assert_match(/^process #{pid} .*"of the parent".*^process #{child} .*"of the child"/m, both)
      Process.kill(:KILL, child)
      wait_until { heddle("ps", pid).scan(/^process/).one? }
      refute_match(/of the child/, heddle("ps", pid))
    end
  end

  # It has its parent's tasks and loops in memory, which are not its own.
  def test_a_child_that_is_asked_before_its_ruby_thread_runs
    out = assert_child(<<~'RUBY', env: {"XDG_RUNTIME_DIR" => @runtime})
      require "socket"
      $stdout.sync = true
      Heddle.insight
      asking = Module.new do
        def start_helper
          path = Dir.glob(File.join(Heddle::Insight::Folder.own, "#{Process.pid}*.sock")).first
          rows = UNIXSocket.open(path) { |socket| socket.puts("ps wait=10") || socket.read.lines }
          puts "#{rows.grep(/"task":/).size} tasks, #{rows.grep(/"loop":/).size} loops, end #{rows.last}"
          super
        end
      end
      Heddle::Insight.singleton_class.prepend(asking)
      Heddle.run do
        2.times { Heddle.spawn { sleep } }
        sleep(0.01)
        Process.wait(fork { exit!(0) })
        exit!(0)
      end
    RUBY
    assert_equal %(0 tasks, 0 loops, end {"end":true}\n), out
  end

  def test_a_child_that_ends_before_it_answers
    looking_into("puts spawn('sleep 60'), 'ready'; sleep") do |pid, out|
      child = File.read(out.path).to_i
      server = UNIXServer.new("#{@runtime}/heddle/#{child}.sock")
      ends = Thread.new { loop { server.accept.close } }
      status, out, err = command("ps", pid, "--json")
      assert_equal [0, [pid]], [status, out.lines.map { |line| JSON.parse(line)["process"]["pid"] }]
      assert_empty err
      assert_match(/before it answered$/, command("ps", child).last)
    ensure
      Process.kill(:KILL, child) if child
      ends&.kill&.join
      server&.close
    end
  end

  def test_children_of_processes
    looking_into(<<~RUBY) do |pid|
      Heddle.run do
        Heddle.spawn { Heddle::Processes.new(2, fibers: 3).map([1, 2]) { |item| item == 1 && puts("ready"); sleep } }
        sleep
      end
    RUBY
      wait_until { heddle("ps", pid).scan(/^process \d+/).size == 3 }
    end
  end

  def test_forks_in_a_trap_handler_and_in_masses
    looking_into(<<~RUBY, gems: true) do |pid, out| # RubyGems has a `require` that trap handlers may not call
      trap("USR1") { fork { puts "child \#{$$}"; $stdout.flush; sleep } }
      Heddle.run do
        Heddle.spawn(name: "forks") { 20.times { Process.wait(fork { exit! }) }; puts "ready" }
        sleep
      end
    RUBY
      assert heddle("ps", pid)
      Process.kill(:USR1, pid)
      child = Integer(wait_until { File.read(out.path)[/child (\d+)/, 1] })
      assert wait_until { heddle("ps", pid).include?("\nprocess #{child} ") }
      Process.kill(:KILL, child)
    end
  end

  # The child has copies of the socket and of the connection.
  def test_forks_while_reports_are_made
    looking_into(<<~RUBY) do |pid, out|
      Heddle.run do
        Heddle.spawn(name: "forks") { loop { Process.wait(fork { exit! }); sleep 0.001 } }
        puts "ready"
        sleep
      end
    RUBY
      30.times { assert task(snapshot(pid), "forks") }
      refute_match(/rror/, File.read(out.path))
    end
  end

  def test_a_daemon
    looking_into(<<~RUBY) do |pid, out|
      out = $stdout.dup.tap { |io| io.sync = true }
      fork { Process.daemon(true, true); Heddle.run { out.puts "daemon \#{$$}", "ready"; sleep } }
      sleep
    RUBY
      daemon = Integer(wait_until { File.read(out.path)[/daemon (\d+)/, 1] })
      text = wait_until { (result = command("ps", daemon)).first.zero? && result[1] }
      assert_match(/^process #{daemon} .*: 1 task/, text)
    ensure
      Process.kill(:KILL, daemon) if daemon
    end
  end

  # ---- users

  def test_another_users_process
    skip "only root can be two users" unless Process.euid.zero?
    File.chmod(0o711, @runtime)
    theirs = Dir.mktmpdir("heddle-theirs")
    File.chown(NOBODY, NOBODY, theirs)
    program = <<~RUBY
      Process::GID.change_privilege(#{NOBODY})
      Process::UID.change_privilege(#{NOBODY})
      ENV["XDG_RUNTIME_DIR"] = #{theirs.dump}
      path = Heddle.insight
      puts path, "ready"
      sleep
    RUBY
    looking_into(program, insight: false) do |_, out|
      path = File.read(out.path).lines.first.chomp
      folder = Heddle::Insight::Folder.new(File.dirname(path))
      error = assert_raises(Heddle::CLI::Failure) { Heddle::CLI.const_get(:Question).new(folder, path).ask("ps") }
      assert_match(/the process is user #{NOBODY}'s, and answers that user only/o, error.message)
      asked = as_nobody("print UNIXSocket.new(#{path.dump}).tap { |socket| socket.puts('ps') }.read")
      assert_match(/"end":true/, asked)
    end
    looking_into("puts 'ready'; sleep") do
      assert_match(/Permission denied|EACCES/, as_nobody("UNIXSocket.new(#{sockets.first.dump})"))
    end
  ensure
    FileUtils.rm_rf(theirs) if theirs
  end

  def test_folders_that_are_not_safe
    folder = Heddle::Insight::Folder
    path = File.join(@runtime, "heddle")
    FileUtils.mkdir(path, mode: 0o777)
    File.chmod(0o777, path)
    assert_match(/must be a folder that only user #{Process.euid} can open/, refusal(folder, path))
    FileUtils.rmdir(path)
    FileUtils.mkdir(File.join(@runtime, "elsewhere"), mode: 0o700)
    File.symlink("elsewhere", path)
    assert_match(/must be a folder/, refusal(folder, path))
    File.chmod(0o777, @runtime)
    assert_equal "/tmp/heddle-#{Process.euid}", folder.own
    File.chmod(0o700, @runtime)
    assert_equal path, folder.own
  end

  # Otherwise other users could answer in the name of this one's processes.
  def test_a_folder_of_another_user_is_not_asked
    skip "only root can be two users" unless Process.euid.zero?
    FileUtils.mkdir_p("#{@runtime}/heddle", mode: 0o700)
    File.chown(NOBODY, NOBODY, "#{@runtime}/heddle")
    status, out, err = answered(%({"heddle":"1","pid":#{Process.pid}}\n{"end":true}\n))
    assert_equal [69, ""], [status, out]
    assert_match(/process #{Process.pid} does not listen/, err)
  end

  # ---- peers that misbehave

  # It is stopped, say.
  def test_a_process_that_accepts_no_connection
    FileUtils.mkdir_p("#{@runtime}/heddle", mode: 0o700)
    server = UNIXServer.new("#{@runtime}/heddle/1.sock")
    server.listen(0)
    folder = Heddle::Insight::Folder.new("#{@runtime}/heddle")
    waiting = []
    error = assert_within(10) do
      assert_raises(Errno::EAGAIN) { 10.times { waiting << folder.connect(server.path, 0.0) } }
    end
    assert_match(/the process accepts no connection/, error.message)
  ensure
    waiting&.each(&:close)
    server&.close
  end

  def test_peers_that_flood_or_stall
    looking_into("Heddle.run { puts 'ready'; sleep }") do |pid|
      flood = UNIXSocket.new(sockets.first)
      assert_cut(flood) { flood.write("x" * 1_000_000) }
      silent = UNIXSocket.new(sockets.first) # is cut after a second, and the command answered then
      assert heddle("ps", pid)
      assert_cut(silent)
      gone = UNIXSocket.new(sockets.first)
      gone.write("ps\n")
      gone.close
      assert heddle("ps", pid)
    end
  end

  # As a command does on a busy machine.
  def test_who_reads_slowly_gets_all
    looking_into(<<~RUBY) do |_, _|
      Heddle.run { 20_000.times { Heddle.spawn { sleep } }; puts "ready"; sleep }
    RUBY
      UNIXSocket.open(sockets.first) do |slow|
        slow.write("ps\n")
        bytes = +""
        12.times { bytes << slow.readpartial(65_536) && sleep(1) }
        assert_operator bytes.size, :<, 1 << 20, "the answer fits into the socket's buffer"
        assert_operator (bytes << slow.read).lines.size, :>, 20_000
        assert_equal %({"end":true}\n), bytes.lines.last
      end
    end
  end

  # An answer that nobody reads, while the process ends.
  def test_the_end_while_an_answer_is_owed
    looking_into(<<~RUBY, signal: :TERM) do |_, _|
      trap("TERM") { exit }
      Heddle.run { 20_000.times { Heddle.spawn { sleep } }; puts "ready"; sleep }
    RUBY
      @slow = UNIXSocket.new(sockets.first)
      @slow.write("ps\n")
      @slow.wait_readable(10)
    end
    assert_empty sockets
  ensure
    @slow&.close
  end

  # Some library closes all descriptors that it does not know, and their numbers name other files afterwards.
  def test_its_descriptors_are_closed_by_other_code
    looking_into(<<~RUBY) do |pid|
      ours = Dir.children("/proc/self/fd").map(&:to_i).select do |number|
        File.readlink("/proc/self/fd/\#{number}").match?(/socket|pipe/)
      rescue Errno::ENOENT
        false
      end
      ours.each { |number| IO.for_fd(number, autoclose: false).close if number > 4 rescue nil }
      pairs = Array.new(8) { UNIXSocket.pair }
      Heddle.insight(false)
      Heddle.insight
      pairs.each { |one, other| one.write("x"); raise "closed" unless other.read(1) == "x" }
      Heddle.run { puts "ready"; sleep }
    RUBY
      assert_match(/^process #{pid} /, heddle("ps", pid))
    end
  end

  # Some code closes a connection's descriptor, and the number names another socket: that socket's bytes are not read,
  # and it gets no answer.
  def test_a_connection_whose_number_becomes_another_sockets
    skip "the system does not list descriptors" unless File.directory?("/proc/self/fd")
    assert_equal "ps\n", assert_child(<<~RUBY, env: {"XDG_RUNTIME_DIR" => @runtime, "RUBYLIB" => "#{ROOT}/test"})
      require "support/native_calls"
      sockets = lambda do
        Dir.children("/proc/self/fd").map(&:to_i).select do |number|
          File.readlink("/proc/self/fd/\#{number}").start_with?("socket")
        rescue Errno::ENOENT
          false
        end
      end
      path = Heddle.insight
      before = sockets.call
      silent = UNIXSocket.new(path)
      found = []
      sleep 0.001 while (found = sockets.call - before - [silent.fileno]).empty?
      mine, theirs = UNIXSocket.pair
      NativeCalls.dup2(theirs.fileno, found.first)
      mine.write("ps\n")
      next_one = UNIXSocket.new(path)
      next_one.write("ps\n")
      next_one.read # the thread is done with the connection before
      print theirs.read_nonblock(10)
    RUBY
  end

  # ---- many loops, and others at once

  def test_more_loops_than_a_process_usually_has
    looking_into(<<~RUBY, env: {"HEDDLE_BACKEND" => "poll"}) do |pid|
      300.times { Thread.new { Heddle.run { sleep } } }
      sleep 0.01 until Heddle::Scheduler.open.size == 300
      puts "ready"
      sleep
    RUBY
      assert_equal 300, snapshot(pid)["loops"].size
    end
  end

  # Ruby may switch threads at the end of any method call: here, while the name of the loop's thread is asked for.
  def test_switched_off_and_on_while_a_loop_begins
    looking_into(<<~RUBY) do |pid|
      times = 0
      thread = Thread.new do
        TracePoint.new(:c_return) do |point|
          next if point.method_id != :bind_call || Thread.current != thread
          Thread.new { Heddle.insight(false) || Heddle.insight }.join
          times += 1
        end.enable { Heddle.run { sleep 0.001 } }
      end
      thread.join
      raise "no name was asked for" if times.zero?
      Heddle.run { puts "ready"; sleep }
    RUBY
      assert_equal ["main thread"], snapshot(pid)["loops"].map { |row| row["thread"] }
    end
  end

  # Its clock stands still, and the time that Ruby code has for its part must pass all the same.
  def test_a_simulation_that_is_stuck
    looking_into(<<~RUBY, env: {"RUBYLIB" => "#{ROOT}/test"}) do |pid|
      require "heddle/simulation"
      require "support/native_calls"
      require "io/nonblock"
      mine, theirs = UNIXSocket.pair
      mine.nonblock = false
      Heddle::Simulation.run(seeds: 1) { puts "ready"; NativeCalls.recv_holding_the_lock(mine.fileno) }
    RUBY
      assert_includes %w[late missing], snapshot(pid)["reason"] # its thread may not even have begun
    end
  end

  private

  def refusal(folder, path)
    assert_raises(Heddle::Insight::Insecure) { folder.new(path).bind(1) { flunk } }.message
  end

  # The peer of this connection closes it, however much was sent.
  def assert_cut(socket)
    yield if block_given?
    assert socket.wait_readable(stretched(10)), "the connection is still open"
    assert_empty socket.read.to_s
  rescue Errno::EPIPE, Errno::ECONNRESET
    nil
  ensure
    socket.close
  end

  def as_nobody(code)
    program = "Process::GID.change_privilege(#{NOBODY}); Process::UID.change_privilege(#{NOBODY}); #{code}"
    command = [RbConfig.ruby, "--disable=gems", "-rsocket", "-e", program]
    IO.popen({"RUBYOPT" => nil}, command, err: %i[child out], &:read)
  end
end
