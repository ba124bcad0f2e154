# frozen_string_literal: true

require "test_helper"
require "socket"
require "support/mariadb_server"
require "support/odbc_contract"

# What a driver's calls must not do: stop other tasks, keep a connection or the process, or outlive a fork.
class ODBCCallsTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers
  include ODBCContract

  hard_deadline 60

  # Passes a server's bytes on, until it is told to swallow them.
  class Mute
    attr_reader :port

    def initialize(host, port)
      @to = [host, port]
      @listener = TCPServer.new("127.0.0.1", 0)
      @port = @listener.addr[1]
      @sockets = []
      @thread = Thread.new { loop { connect(@listener.accept) } }
      @thread.report_on_exception = false
    end

    def mute! = @mute = true

    def close
      @thread.kill
      [@listener, *@sockets].each(&:close)
    end

    private

    def connect(client)
      server = TCPSocket.new(*@to)
      @sockets << client << server
      [[client, server], [server, client]].each do |from, to|
        Thread.new do
          while (bytes = from.readpartial(65_536))
            to.write(bytes) unless @mute
          end
        rescue IOError, SystemCallError
          nil
        end
      end
    end
  end

  def test_other_tasks_run_during_a_query
    Heddle.run do
      db = connect
      ticks = 0
      query = Heddle.spawn { db.query("select sleep(0.5)") }
      ticks += 1 until query.wait(0.005)
      assert_operator ticks, :>, 5 # of 100 on a machine that does nothing else
      db.close
    end
  end

  def test_other_threads_run_during_a_query
    db = connect
    ticks = 0
    query = Thread.new { db.query("select sleep(0.5)") }
    until query.join(0.005)
      ticks += 1
    end
    assert_operator ticks, :>, 5 # of 100 on a machine that does nothing else
  ensure
    db&.close
  end

  # Each was read from within the one before.
  def test_very_many_results_of_one_statement
    count = 3000
    db = connect
    db.exec("create or replace procedure very_many() begin " \
      "declare i int default 0; while i < #{count} do set i = i + 1; select i; end while; end")
    found = [-> { db.query("call very_many()") }, -> { Heddle.run { db.query("call very_many()") } }].map do |query|
      result = query.call
      numbers = []
      while result
        numbers.concat(result.rows.flatten)
        result = result.following
      end
      numbers
    end
    assert_equal [(1..count).to_a] * 2, found
  ensure
    db&.exec("drop procedure if exists very_many")
    db&.close
  end

  # The driver crashed when it was asked for the result behind them.
  def test_bodies_of_routines_and_events
    db = connect
    body = "begin declare i int; set i = 1; set i = 2; end"
    db.exec("create or replace table routines (a int)")
    ["create or replace procedure routine() #{body}", "/* a */ -- b\n create or replace procedure routine() #{body}",
      "/*!50003 create or replace trigger routines_t before insert on routines for each row #{body} */",
      "create or replace event routine on schedule every 9 day do #{body}",
      "begin not atomic set @a = 1; set @b = 2; end",
      "alter event routine on schedule every 8 day do #{body}", "if 1 then set @a = 1; set @b = 2; end if",
      "create or replace function routine() returns int begin declare i int; set i = 7; return i; end"].each do |sql|
      assert_nil db.query(sql).following, sql
      assert_equal 0, db.prepare(sql).exec
    end
    assert_equal 7, db.query_value("select routine()")
  ensure
    ["table routines", "procedure routine", "function routine", "event routine"]
      .each { |name| db&.exec("drop #{name.sub(" ", " if exists ")}") }
    db&.close
  end

  # In a transaction nobody knows what it has come to.
  def test_a_deadline_in_a_transaction_closes_the_connection
    db = connect
    assert_raises(Heddle::DeadlineExceeded) do
      db.transaction { Heddle.deadline(0.2) { db.query("select sleep(20)") } }
    end
    assert_predicate db, :closed?
  end

  def test_the_next_query_is_not_cancelled
    db = connect
    5.times do |n|
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { db.query("select sleep(20)") } }
      db = connect if db.closed? # too slow to answer
      assert_equal [n, 0], db.query_row("select ?, sleep(0.01)", n)
    end
  ensure
    db&.close
  end

  def test_a_driver_that_does_not_answer
    mute = Mute.new(*server)
    db = connect(mute.port)
    assert_equal 1, db.query_value("select 1")
    mute.mute!
    assert_within(3, at_least: 1, remeasure: 0) do
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { db.query("select 1") } }
    end
    assert_predicate db, :closed?
    assert_raises(IOError) { db.query("select 1") }
    db.close
  ensure
    mute&.close
  end

  def test_a_connect_to_a_silent_server_times_out
    listener = TCPServer.new("127.0.0.1", 0)
    assert_within(2, at_least: 0.2) do
      error = assert_raises(Heddle::DB::ConnectTimeout) { connect(listener.addr[1], connect_timeout: 0.25) }
      assert_match(/connect_timeout: \(0\.25 s\)/, error.message)
    end
  ensure
    listener&.close
  end

  # The process ends although a call never does, and although connections are open.
  def test_the_end_of_the_process
    mute = Mute.new(*server)
    address = address_of(mute.port)
    out, = with_child(address) do |line|
      mute.mute! if line == "connected"
    end
    assert_includes out, "ends"
  ensure
    mute&.close
  end

  def test_a_child_of_fork
    db = connect
    statement = db.prepare("select 1")
    pid = fork do
      refused = begin
        db.query("select 1")
      rescue IOError => error
        error.message[/parent/]
      end
      statement = nil
      GC.start
      db.close
      own = connect(connect_timeout: 10)
      exit!((refused == "parent" && own.query_value("select 2") == 2) ? 0 : 1)
    end
    assert_predicate Process.wait2(pid).last, :success?
    assert_equal 1, db.query_value("select 1")
    assert_equal [[1]], statement.query.rows
  ensure
    db&.close
  end

  def test_collected_connections_are_closed
    own = connect
    watch = -> { own.query_value("select count(*) from information_schema.processlist where command = 'Sleep'") }
    before = watch.call
    abandoned = Array.new(5) { connect }
    assert_equal before + 5, watch.call
    abandoned.clear
    nil
    wait_until(what: "the end of connections that nobody has any more") do
      GC.start
      watch.call <= before + 1 # the stack may still hold one
    end
    200.times { own.prepare("select ?") }
    wait_until(what: "the close of statements that nobody has any more") do
      GC.start
      own.query_value("select 1") && own.driver.closes < 5
    end
  ensure
    own&.close
  end

  def test_a_close_during_a_query
    db = connect
    thread = Thread.new { db.query("select sleep(20)") }
    thread.report_on_exception = false
    wait_until { !db.at_rest? }
    db.close
    assert_raises(Heddle::DB::ConnectionLost) { thread.value }
  end

  # In a process with few objects, where the GC is quick.
  def test_under_gc_stress
    out = IO.popen(child(<<~RUBY), &:read)
      require "heddle/db/odbc"
      db = Heddle::DB.connect(#{address_of(mariadb.port).dump})
      statement = db.driver.prepare("select ?, ?, ?, now()")
      GC.stress = true
      rows = db.driver.execute(statement, [1, "é", nil]).rows
      GC.stress = false
      p rows.first.take(3), rows.first.last.class
    RUBY
    assert_equal %([1, "é", nil]\nTime\n), out
  end

  private

  def server = mariadb.then { |server| [server.host, server.port] }

  def address_of(port)
    source("calls#{port}", "MariaDB", SERVER: "127.0.0.1", PORT: port, DATABASE: mariadb.database,
      UID: mariadb.username, PWD: mariadb.password)
  end

  def connect(port = mariadb.port, **options) = Heddle::DB.connect(address_of(port), timeout: 20, **options)

  # Without RubyGems, whose objects would make the GC slow.
  def child(program)
    [{"RUBYOPT" => nil}, RbConfig.ruby, "--disable=gems", *$LOAD_PATH.map { |path| "-I#{path}" }, "-e", program]
  end

  # Runs a program that connects twice, and ends while one connection waits for an answer that never comes.
  def with_child(address)
    program = <<~RUBY
      require "heddle"
      idle, busy = Array.new(2) { Heddle::DB.connect(#{address.dump}) }
      $stdout.sync = true
      puts "connected"
      $stdin.gets
      Thread.new { busy.query("select 1") }
      sleep(0.01) while busy.at_rest?
      puts "ends"
    RUBY
    IO.popen(child(program), "r+") do |child|
      assert_equal "connected\n", child.gets
      yield "connected"
      child.puts
      out = Heddle.deadline(20) { child.read }
      child.close
      assert_predicate $?, :success?
      [out, $?]
    end
  end
end
