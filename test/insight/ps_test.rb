# frozen_string_literal: true

require "test_helper"
require "support/insight_helpers"
require "support/postgresql_server"
require "heddle/simulation"

# heddle ps, tree and why, of processes whose loops go on.
class PsTest < Minitest::Test
  include InsightHelpers
  include PostgreSQLHelpers

  TASKS = <<~RUBY
    Heddle.run do
      queue = Thread::Queue.new
      server = TCPServer.new("127.0.0.1", 0)
      client = TCPSocket.new("127.0.0.1", server.addr[1])
      Heddle.spawn(name: "sleeper") { sleep }
      popper = Heddle.spawn(name: "popper") { queue.pop }
      Heddle.spawn(name: "joiner") { popper.value }
      Heddle.deadline(500) { Heddle.spawn(name: "reader") { client.read } }
      Heddle.spawn(name: "parent") do
        Heddle.spawn(name: "child") { Heddle::Semaphore.new(0).acquire }
        sleep
      end
      Heddle.spawn(name: "busy") { loop { sleep 0.001 } }
      sleep 0.01
      puts "port \#{server.addr[1]}", "ready"
      sleep
    end
  RUBY

  def test_what_each_task_waits_for
    looking_into(TASKS) do |pid, out|
      port = File.read(out.path)[/port (\d+)/, 1]
      text = heddle("ps", pid)
      assert_match(/\Aprocess #{pid} \(.*\): 8 tasks, Ruby #{RUBY_VERSION}, heddle /o, text)
      assert_match(/^main thread: 8 tasks on \w+, \d+ ready/, text)
      {"sleeper" => "the end of a sleep", "popper" => "a Thread::Queue", "joiner" => /the end of task \d+ "popper"/,
       "reader" => /descriptor \d+ \(127\.0\.0\.1:#{port}\) to be readable/,
       "child" => "#<Heddle::Semaphore 0 of 0 taken, 1 waiting>"}.each do |name, wait|
        assert_match(/^  \d+ +waiting +\d.* "#{name}" +#{wait}$/, text)
      end
      assert_match(/^  \d+ +waiting +\S+ m?s +[45]\d\d\.\d s .*"reader"/, text)
    end
  end

  def test_json_has_times_and_turns
    looking_into(TASKS) do |pid|
      busy = task(snapshot(pid) { |found| task(found, "busy")["turns"] > 5 }, "busy")
      assert_operator busy["ran"], :>, 0
      sleeper = task(snapshot(pid), "sleeper")
      assert_equal [1, "waiting"], sleeper.values_at("turns", "state")
    end
  end

  # The report of a task's error lets other tasks run after the task's end.
  def test_tasks_that_have_failed_are_gone
    looking_into(<<~RUBY, err: File::NULL) do |pid|
      Heddle.run do
        10.times { Heddle.spawn(name: "failed") { sleep 0.01; raise "an error that is reported" } }
        sleep 0.1
        puts "ready"
        sleep
      end
    RUBY
      assert_equal 1, snapshot(pid)["tasks"].size
    end
  end

  def test_the_tree_shows_who_started_whom
    looking_into(TASKS) do |pid|
      lines = heddle("tree", pid).lines(chomp: true)
      assert_match(/\A└─ \d+ waiting/, lines[2])
      parent = lines.index { |line| line.match?(/\A   ├─ \d+ "parent"/) }
      assert_match(/\A   │  └─ \d+ "child" waiting for /, lines[parent + 1])
    end
  end

  def test_why_follows_what_a_task_waits_for
    looking_into(TASKS) do |pid|
      number = task(snapshot(pid), "joiner")["task"]
      text = heddle("why", pid, number)
      assert_match(/^task #{number} "joiner" waiting for .*: the end of task \d+ "popper"$/, text)
      assert_match(/^  task \d+ "popper" waiting for .*: a Thread::Queue\n    started by task \d+\n      from /, text)
      assert_match(/(?:-e|<internal:thread_sync>):\d+:in .*pop/, text)
      status, _, err = command("why", pid, 4_000_000)
      assert_equal 69, status
      assert_match(/process #{pid} has no task 4000000/, err)
    end
  end

  def test_tasks_that_wait_for_each_other
    looking_into(<<~RUBY) do |pid|
      Heddle.run do
        one = two = nil
        one = Heddle.spawn(name: "one") { sleep 0.01; two.value }
        two = Heddle.spawn(name: "two") { one.value }
        sleep 0.1
        puts "ready"
        sleep
      end
    RUBY
      number = task(snapshot(pid) { |found| task(found, "one")["awaits"] }, "one")["task"]
      assert_match(/task \d+ "two" .*\n.*task #{number} "one" .*\n +which .* a cycle$/m, heddle("why", pid, number))
    end
  end

  def test_who_has_the_permits
    looking_into(<<~RUBY) do |pid|
      Heddle.run do
        permits = Heddle::Semaphore.new(2)
        pool = Heddle::ResourcePool.new(size: 1) { Object.new }
        %w[first second].each { |name| Heddle.spawn(name: name) { permits.acquire { sleep } } }
        Heddle.spawn(name: "gone") { permits.try_acquire { sleep } }
        Heddle.spawn(name: "third") { permits.acquire { sleep } }
        Heddle.spawn(name: "has it") { pool.with { sleep } }
        Heddle.spawn(name: "wants it") { pool.with { sleep } }
        sleep 0.01
        puts "ready"
        sleep
      end
    RUBY
      found = snapshot(pid) { |one| task(one, "third")["awaits"] }
      numbers = %w[first second].map { |name| task(found, name)["task"] }
      assert_equal numbers, task(found, "third")["awaits"]
      text = heddle("why", pid, task(found, "wants it")["task"])
      assert_match(/"wants it" waiting .*: #<Heddle::ResourcePool 1 of 1.*^  task \d+ "has it" waiting/m, text)
    end
  end

  # Both holders wait for the same task, which is no cycle.
  def test_what_two_tasks_wait_for
    looking_into(<<~RUBY) do |pid|
      Heddle.run do
        permits = Heddle::Semaphore.new(2)
        sleeper = Heddle.spawn(name: "sleeper") { sleep }
        2.times { Heddle.spawn(name: "holder") { permits.acquire { sleeper.wait } } }
        Heddle.spawn(name: "waiter") { permits.acquire }
        sleep 0.01
        puts "ready"
        sleep
      end
    RUBY
      found = snapshot(pid) { |one| task(one, "waiter")["awaits"] && task(one, "holder")["awaits"] }
      text = heddle("why", pid, task(found, "waiter")["task"])
      assert_equal 2, text.scan("\"sleeper\" waiting").size, text
      assert_match(/"sleeper" waiting .*\n +see above$/, text)
      refute_includes text, "cycle"
    end
  end

  def test_who_may_hold_a_lock
    looking_into(<<~RUBY) do |pid|
      Heddle.run do
        one, two = Thread::Mutex.new, Thread::Mutex.new
        Heddle.spawn(name: "holder") { one.synchronize { sleep } }
        Heddle.spawn(name: "waiter") { one.synchronize { 1 } }
        Heddle.spawn(name: "bystander") { sleep }
        sleep 0.01
        puts "ready"
        sleep
      end
    RUBY
      number = task(snapshot(pid), "waiter")["task"]
      text = heddle("why", pid, number)
      assert_match(/task #{number} "waiter" .*: a Thread::Mutex$.*may hold it:\n  task \d+ "holder" waiting/m, text)
      refute_includes text, "bystander"
    end
  end

  def test_the_statement_that_a_task_runs
    looking_into(<<~RUBY, env: {"URL" => postgresql.url}, gems: true) do |pid|
      require "heddle/db"
      pool = Heddle::DB::Pool.new(ENV.fetch("URL"), size: 1)
      Heddle.run do
        Heddle.spawn(name: "asks") { pool.query_value("select pg_sleep(60), 'secret' where $1 = 'x'", "x") }
        Heddle.spawn(name: "wants one") { sleep 0.01; pool.query_value("select 1") }
        puts "ready"
        sleep
      end
    RUBY
      found = snapshot(pid) { |one| task(one, "asks")["query"] && task(one, "wants one")["awaits"] }
      asks = task(found, "asks")
      assert_equal "select pg_sleep(?), ? where $1 = ?", asks["query"]
      assert_equal [asks["task"]], task(found, "wants one")["awaits"]
      assert_match(/"asks" +descriptor .* to be readable: select pg_sleep\(\?\)/, heddle("ps", pid))
    end
  end

  def test_what_belongs_to_no_task
    looking_into(<<~RUBY, env: {"RUBYLIB" => "#{ROOT}/test"}) do |pid|
      require "heddle/net_http"
      require "support/keeping_server"
      server = KeepingServer.new
      Heddle::NetHTTP.keep_alive(idle: 600)
      sessions = Array.new(2) { Net::HTTP.start("127.0.0.1", server.port) }
      sessions.each { |http| http.get("/") }
      sessions.each(&:finish)
      Heddle.run do
        Heddle.spawn { Heddle.offload { sleep } }
        sleep 0.01
        puts "ready"
        sleep
      end
    RUBY
      found = snapshot(pid) { |one| one.dig("ruby", "workers", "offload", 0) == 1 }
      assert_equal [1, 0, 32], found["ruby"]["workers"]["offload"]
      assert_equal [2], found["ruby"]["idle_http_connections"].values
      text = heddle("ps", pid)
      assert_match(/^idle HTTP connections: 2 to 127\.0\.0\.1:\d+$/, text)
      assert_match(/^worker threads for offload: 1 of 32 busy, 0 blocks queued$/, text)
      assert_match(/^\d+ threads, \d+ of \d+ open descriptors$/, text)
    end
  end

  def test_names_in_flight
    Heddle::Simulation.run(seeds: 1) do |world|
      world.name("api.example", "10.0.0.1")
      looking_up = Heddle.spawn { Addrinfo.getaddrinfo("api.example", 80, nil, :STREAM) }
      sleep(0) until looking_up.waits_for == "a name to be resolved"
      assert_match(/^names in flight: api\.example$/, dumped)
      looking_up.wait
      refute_match(/names in flight/, dumped)
    end
  end

  def test_objects_whose_methods_raise
    looking_into(<<~RUBY) do |pid|
      raising = Class.new(Thread) do
        def name = raise("a name")
        def inspect = raise("inspect")
      end
      thread = raising.new { sleep }
      permits = Class.new(Heddle::Semaphore) { def inspect = raise(KeyError) }.new(0)
      Heddle.run do
        Heddle.spawn(name: "joins") { thread.join }
        Heddle.spawn(name: "acquires") { permits.acquire }
        puts "ready"
        sleep
      end
    RUBY
      found = snapshot(pid) { |one| task(one, "acquires")["waits_for"] }
      assert_match(/\Athe end of thread \d+\z/, task(found, "joins")["waits_for"])
      assert_equal "#<object, whose method inspect raises KeyError>", task(found, "acquires")["waits_for"]
      assert_includes found["ruby"]["pools"], "#<object, whose method inspect raises KeyError>"
    end
  end

  # Its error is printed after its end, and the pipe for that is full.
  def test_a_task_that_has_ended_is_listed_no_more
    looking_into(<<~RUBY) do |pid|
      reader, writer = IO.pipe
      nil until writer.write_nonblock("x" * 4096, exception: false) == :wait_writable
      $stderr = writer
      Heddle.run do
        Heddle.spawn(name: "lives") { sleep }
        task = Heddle.spawn(name: "fails") { sleep 0.01; raise "printed late" }
        sleep 0.05 until task.ended?
        sleep 0.05
        Thread.new { reader.readpartial(1 << 20) while true }
        sleep 0.3
        puts "ready"
        sleep
      rescue => error
        sleep 0.3
        puts "ready"
        sleep
      end
    RUBY
      found = snapshot(pid)
      assert_equal [], found["tasks"].map { |one| one["state"] } - ["waiting"], found["tasks"]
    end
  end

  def test_statements_without_values
    sql = Heddle::Insight.const_get(:SQL)
    {
      "select * from t1 where a = 'x''y' and b=-1.5e3" => "select * from t1 where a = ? and b=-?",
      "select $1, E'a\\\\b', $tag$ secret $tag$, 0xff" => "select $1, ?, ?, ?",
      "select 1 -- secret\n, 2" => "select ? , ?", "select 'open" => "select ?",
      %(select "a" from t) => "select ? from t",
      "select $$secret #{"x" * 3000}$$" => "select ?", "select a$b$c, 'x'" => "select a$b$c, ?",
      "select 'C:\\', 'secret'" => "select ?", "select 'C:\\\\', b, 'secret'" => "select ?, b, ?",
      %(select "a\\", "secret") => "select ?", "select 'open\\" => "select ?",
      "select 0b101, 1_000, 1e-5, .5, 'a''b', c1" => "select ?, ?, ?, .?, ?, c1",
      "select $é$ it's secret $é$, é$$, 'x'" => "select ?, é$$, ?",
      "select /* it's */ a, 'x' -- it's\r\n, 'y'" => "select a, ? , ?",
      "select `a b-c`.`d5`, array['x', 'y'][1], a[i-1], a[$1]" => "select `a b-c`.`d5`, array[?, ?][?], a[i-?], a[$1]"
    }.each { |text, expected| assert_equal expected, sql.without_values(text) }
  end

  # Databases read these texts differently.
  def test_statements_that_are_not_understood_for_certain
    sql = Heddle::Insight.const_get(:SQL)
    ["E'\\', 'secret", "e'x\\', 'secret'", "1 # it's\n, 'secret'", "j #> '{a}', 'secret\nsecret'",
      "/* a /* b */ it's */ 'secret'", "/*! '*/ secret' */ 'x'", "/*M! '*/ secret' */ 'x'", "5--'x\nsecret'",
      "1 -- a\r 'x\n secret'", "`it's`, 'secret'", "[it's], 'secret'", "array['a]', 'secret'", "q'[it's secret]'",
      "nq'{it's secret}'", "é$$ 'x $$ secret'"].each do |text|
      shown = sql.without_values("select #{text}")
      refute_includes shown, "secret", text
      assert shown.match?(/\A(?:select| )/), text
    end
    assert_within(2) { ["[", "`", "$", "/*", "'\\", "[a", "e'"].each { |text| sql.without_values(text * 2000) } }
  end

  def test_all_loops_of_all_threads
    looking_into(<<~RUBY) do |pid|
      2.times do |index|
        Thread.new { Heddle.run { Heddle.spawn(name: "of \#{index}") { sleep }; sleep } }.name = "worker \#{index}"
      end
      sleep 0.01 until Heddle::Scheduler.open.size == 2 && Heddle::Scheduler.open.all? { |one, _| one.tasks.size == 2 }
      puts "ready"
      sleep
    RUBY
      text = heddle("ps", pid)
      assert_equal 2, text.scan(/^(?:a thread|worker \d): 2 tasks on/).size, text
      ["of 0", "of 1"].each { |name| assert_includes text, "\"#{name}\"" }
    end
  end

  # It was switched on while tasks run already.
  def test_switched_on_late_and_off_again
    looking_into(<<~RUBY, insight: false) do |pid|
      Heddle.run do
        Heddle.spawn(name: "early") { sleep }
        path = Heddle.insight
        raise "another path" unless Heddle.insight == path
        Heddle.insight(false)
        raise "it is still there" if File.exist?(path)
        Heddle.insight
        Heddle.spawn(name: "late") { sleep }
        sleep 0.01
        puts "ready"
        sleep
      end
    RUBY
      found = snapshot(pid)
      %w[early late].each { |name| assert_equal "sleep", task(found, name)["wait"] }
      assert_equal 3, found["loops"].first["tasks"]
    end
  end

  def test_names_cannot_forge_lines_nor_escapes
    looking_into(<<~'RUBY') do |pid|
      Heddle.run do
        Heddle.spawn(name: "a\n\e[31mb\u202e\"") { sleep }
        Heddle.spawn(name: "\xff\xfe".b) { sleep }
        Heddle.spawn(name: "ü" * 1000) { sleep }
        puts "ready"
        sleep
      end
    RUBY
      text = heddle("ps", pid)
      assert_includes text, %q("a\n\e[31mb\u202E"")
      assert_includes text, '"??"'
      assert_includes text, %("#{"ü" * 31}")
      refute_match(/[\e\u202e]/, text)
    end
  end

  def test_wide_characters
    task = {"task" => 1, "state" => "waiting", "for" => 1.0, "loop" => 1, "waits_for" => "the end of a sleep"}
    names = ["ab", "日本語", "🍀", "e\u0301", "ｱ"]
    rows = Heddle::Insight::Text.new(nil).table(names.map { |name| task.merge("name" => name) }).drop(1)
    assert_equal ["ab\"      ", "日本語\"  ", "🍀\"      ", "e\u0301\"       ", "ｱ\"       "],
      rows.map { |row| row[/"(.*?" +)the end/, 1] }
  end

  def test_a_process_that_does_not_listen_and_one_that_is_none
    looking_into("puts 'ready'; sleep", insight: false) do |pid|
      status, _, err = command("ps", pid)
      assert_equal 69, status
      assert_match(/process #{pid} does not listen: have it call Heddle.insight/, err)
    end
    status, _, err = command("ps", 2**22 + 1)
    assert_equal 69, status
    assert_match(/there is no process/, err)
  end

  def test_wrong_command_lines
    {%w[ps x] => /"x" is no number/, %w[ps -3] => /invalid option/, %w[tree] => /takes a PID/,
     %w[why 1] => /a PID and a task/,
     %w[ps 1 2] => /takes a PID/, %w[ps --nope] => /invalid option/, %w[brew] => /unknown command "brew"/,
     [] => /no command/}.each do |argv, message|
      status, out, err = command(*argv)
      assert_equal [64, ""], [status, out], argv.inspect
      assert_match message, err
    end
    assert_match(/heddle why PID TASK/, heddle("--help"))
    assert_match(/\Aheddle \d/, heddle("--version"))
    assert_match(/^backend: /, heddle("doctor"))
    assert_match(/\AUsage: heddle COMMAND/, heddle("doctor", "--help"))
    assert_equal [64, "", "heddle: doctor takes no arguments\n"], command("doctor", "extra")
  end

  def test_without_a_pid_it_lists_the_processes
    looking_into("puts 'ready'; sleep") { |pid| assert_match(/^process #{pid} /, heddle("ps")) }
    assert_match(/no process of this user listens/, heddle("ps"))
    assert_empty sockets # the one that the killed process has left was removed
  end

  def test_the_socket_goes_with_the_process
    looking_into("trap('TERM') { exit }; puts 'ready'; sleep", signal: :TERM) { assert_equal 1, sockets.size }
    assert_empty sockets
  end

  def test_async_tasks_on_our_loop
    looking_into(<<~RUBY, gems: true) do |pid|
      require "heddle/async"
      Heddle.run do
        Async(annotation: "annotated") { sleep }
        puts "ready"
        sleep
      end
    RUBY
      assert_equal "sleep", task(snapshot(pid) { |found| task(found, "annotated") }, "annotated")["wait"]
    end
  end

  # A GC in the middle would hold the loop for longer than the report does.
  def test_thirty_thousand_tasks
    looking_into(<<~RUBY, timeout: 120) do |pid|
      Heddle.run do
        queue = Thread::Queue.new
        permits = Heddle::Semaphore.new(0)
        15_000.times { Heddle.spawn { queue.pop } }
        15_000.times { Heddle.spawn { permits.acquire } }
        GC.start
        puts "ready"
        collections = GC.count
        loop do
          sleep 0.05
          puts "collected" if GC.count > collections
        end
      end
    RUBY
      found = nil
      assert_within(10) { found = snapshot(pid) { |one| one["ruby"] } }
      assert_equal 30_001, found["tasks"].size
      assert_equal 15_000, found["tasks"].count { |one| one["waits_for"] == "a Thread::Queue" }
    end
  end

  private

  def dumped = StringIO.new.tap { |io| Heddle.dump(io) }.string
end
