# frozen_string_literal: true

require "test_helper"
require "support/servers"

# The test servers themselves: what they promise the tests, and the machine.
class ServersTest < Minitest::Test
  SUPPORT = File.expand_path("../support/servers.rb", __dir__)

  # Reports that it started, and never answers.
  class Mute < Servers::Server
    private

    def command = ["/bin/sh", "-c", "echo the reason; #{behaviour}"]

    def ready? = false
  end

  class Ending < Mute
    private

    def behaviour = "exit 3"
  end

  class Hanging < Mute
    private

    def behaviour = "exec sleep 60"

    def start_deadline = 0.3
  end

  class Missing < Servers::Server
    private

    def check = program("heddle-no-such-program", package: "no-such-package")
  end

  def setup
    super
    forget
    @elsewhere = ENV.delete(Servers::ELSEWHERE)
  end

  def teardown
    forget
    ENV[Servers::ELSEWHERE] = @elsewhere
    super
  end

  def test_one_server_of_a_kind_below_the_ephemeral_ports
    first = memcached
    assert_same first, memcached
    assert_predicate first, :running?
    assert_operator first.port, :<, 32_768
  end

  def test_another_process_finds_the_servers_that_run
    server = memcached
    script = "require #{SUPPORT.dump}; puts Servers.memcached.port; Servers.stop"
    port = IO.popen([Servers.elsewhere, RbConfig.ruby, "-e", script], &:read)
    assert_equal server.port, port.to_i
    assert_predicate server, :running?
  end

  # The kernel ties a death signal to the thread that started the program, not to the process.
  def test_a_server_outlives_the_thread_that_asked_for_it
    memcached # skips where there is none
    server = Thread.new { Servers::Memcached.new.start }.value
    assert_equal "VERSION", ask(server)
    assert_predicate server, :running?
  ensure
    server&.stop
  end

  def test_stop_ends_the_program_and_deletes_its_data
    memcached
    server = Servers::Memcached.new.start
    pid, dir = server.pid, server.dir
    server.stop
    assert ended?(pid)
    refute Dir.exist?(dir)
    refute_predicate server, :running?
    server.stop # does nothing
  end

  def test_a_sweep_keeps_running_servers
    Servers::Server.sweep
    assert Dir.exist?(memcached.dir)
    assert system(RbConfig.ruby, "-e", "require #{SUPPORT.dump}; Servers::Server.sweep")
    assert Dir.exist?(memcached.dir)
  end

  def test_a_sweep_while_a_server_starts
    others = Dir["#{Dir.tmpdir}/heddle-server-*/claim"] << memcached.dir + "/claim"
    sweep = "require #{SUPPORT.dump}; Servers::Server.sweep"
    swept = false
    trace = TracePoint.new(:c_call) do |call| # the folder is there, and not claimed yet
      next if swept || call.method_id != :flock || others.include?(call.self.path)

      swept = true
      assert system(RbConfig.ruby, "-e", sweep)
    end
    server = Servers::Memcached.new
    trace.enable(target_thread: Thread.current) { server.start }
    assert swept
    assert Dir.exist?(server.dir)
  ensure
    server&.stop
  end

  def test_servers_end_with_a_process_that_exits
    assert_ends_with_its_process("exit 1")
  end

  def test_servers_end_with_a_process_that_is_killed
    assert_ends_with_its_process("Process.kill(:KILL, Process.pid); sleep")
  end

  # A forked child must not end a server that its parent uses.
  def test_a_child_of_the_process_keeps_the_servers
    server = memcached
    pid = fork do
      Servers.stop
      server.stop
      exit!(0)
    end
    Process.wait(pid)
    assert_equal "VERSION", ask(server)
  end

  def test_a_server_program_that_exits_at_once
    error = assert_raises(Servers::StartFailed) { Ending.new.start }
    assert_match(/Ending ended while starting.*the reason/m, error.message)
  end

  def test_a_server_program_that_never_answers
    error = assert_raises(Servers::StartFailed) { Hanging.new.start }
    assert_match(/Hanging did not answer on port \d+ within 0.3 s.*the reason/m, error.message)
  end

  def test_a_server_program_that_is_not_installed
    error = assert_raises(Servers::Unavailable) { Missing.new.start }
    assert_match(/heddle-no-such-program.*no-such-package/, error.message)
  end

  def test_a_failed_build_leaves_nothing_in_the_cache
    name = "test-#{Process.pid}"
    assert_raises(RuntimeError) { Servers.cached(name) { raise "in the middle" } }
    refute Dir.exist?(File.join(Servers.cache_dir, name))
    2.times do
      assert_equal "made", File.read(File.join(Servers.cached(name) { |dir| File.write("#{dir}/it", "made") }, "it"))
    end
  ensure
    FileUtils.rm_rf(Dir[File.join(Servers.cache_dir, "#{name}*")])
  end

  private

  # The servers that other tests share are stopped, or, where they run elsewhere, only forgotten.
  def forget = Servers.stop

  def memcached
    Servers.memcached
  end

  def assert_ends_with_its_process(ending)
    memcached
    script = "require #{SUPPORT.dump}; server = Servers.memcached; " \
      "$stdout.puts [server.pid, server.dir].join(' '); $stdout.flush; #{ending}"
    pid, dir = IO.popen([RbConfig.ruby, "-e", script], &:gets).to_s.split
    assert dir, "the other process did not start its server"
    wait_until(what: "the end of the server") { ended?(pid) }
    # A killed process could not clean up: the next one does.
    wait_until(what: "the end of the claim") do
      Servers::Server.sweep
      !Dir.exist?(dir)
    end
  end

  # A zombie has ended: no process may be left to wait for it.
  def ended?(pid)
    File.read("/proc/#{pid}/stat")[/\) (\w)/, 1] == "Z"
  rescue Errno::ENOENT, Errno::ESRCH
    true
  end

  def ask(server)
    TCPSocket.open(server.host, server.port) do |socket|
      socket.write("version\r\n")
      socket.gets.split.first
    end
  end
end
