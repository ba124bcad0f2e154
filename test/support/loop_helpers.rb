# frozen_string_literal: true

require "heddle"
require "socket"
require "rbconfig"
require "stringio"
require "tempfile"

# What tests of the loop share. Times are in seconds.
module LoopHelpers
  ROOT = File.expand_path("../..", __dir__)

  # What a child process left: the text of both its outputs, and its Process::Status.
  Outcome = Struct.new(:out, :err, :status)

  # Runs Ruby code in a process of its own, with the library loaded. What must not happen to this process (limits,
  # signals, exits) happens there. Gems are nine tenths of what a process takes to start, so there are none unless
  # +gems+ says so. +options+ go to Process.spawn. A block is given the pid and the file that takes its output.
  def in_child(code, env: {}, timeout: 30, launcher: [], gems: false, heddle: true, **options)
    out, err = Tempfile.new("out"), Tempfile.new("err")
    program = "$stdout.sync = true; #{"require 'heddle'; " if heddle}require 'socket'\n#{code}"
    env = {"RUBYOPT" => nil, **env} unless gems
    # From Ruby 4.0 on fiddle, which calls functions of C for tests, is a gem.
    folders = ["#{ROOT}/lib", *Gem.loaded_specs["fiddle"]&.full_require_paths].map { |folder| "-I#{folder}" }
    command = [*launcher, RbConfig.ruby, *(gems ? [] : "--disable=gems"), "-W:no-experimental", *folders, "-e", program]
    pid = Process.spawn(env, *command, out: out.path, err: err.path, in: File::NULL, **options)
    yield pid, out if block_given?
    status = reap(pid, timeout)
    Outcome.new(File.read(out.path), File.read(err.path), status)
  ensure
    [out, err].compact.each(&:close!)
  end

  # As #in_child; it must end by itself with status 0. Returns what it printed.
  def assert_child(code, **options, &block)
    outcome = in_child(code, **options, &block)
    assert outcome.status&.success?, "the child ended with #{outcome.status.inspect}: #{outcome.out}#{outcome.err}"
    outcome.out
  end

  # Raises this process's limit of descriptors for the block, as far as it may. Skips with less than +least+.
  def with_descriptors(wanted, least:)
    soft, hard = Process.getrlimit(:NOFILE)
    limit = [wanted, hard].min
    skip "this process may open #{hard} descriptors, the test needs #{least}" if limit < least

    Process.setrlimit(:NOFILE, [limit, soft].max, hard)
    yield limit
  ensure
    Process.setrlimit(:NOFILE, soft, hard)
  end

  # Both ends of a connected pair of UNIX sockets, closed after the block if there is one.
  def with_pair
    ends = UNIXSocket.pair
    yield(*ends)
  ensure
    ends&.each(&:close)
  end

  # A server on a free port of loopback, whose connections the callable serves, each in a thread.
  def with_server(serve)
    server = TCPServer.new("127.0.0.1", 0)
    threads = []
    acceptor = Thread.new do
      loop do
        connection = server.accept
        threads << Thread.new do
          serve.call(connection)
        ensure
          connection.close
        end
      end
    rescue IOError
      nil
    end
    yield server.addr[1]
  ensure
    acceptor&.kill&.join
    threads&.each { |thread| thread.kill.join }
    server&.close
  end

  # What the block writes to $stderr.
  def stderr_of
    before = $stderr
    $stderr = StringIO.new
    yield
    $stderr.string
  ensure
    $stderr = before
  end

  # The block on a thread of its own, where nothing of this thread's scheduler is. Returns its value or raises its error.
  def in_thread(&block)
    in_background(&block).value
  end

  # Starts the block on a thread, for what mostly waits, beside others like it. Its +value+ is the block's, or raises what it
  # raised: a failed assertion as well.
  def in_background(&block)
    Thread.new(&block).tap { |thread| thread.report_on_exception = false }
  end

  private

  def reap(pid, timeout)
    deadline = monotonic + timeout
    loop do
      _, status = Process.wait2(pid, Process::WNOHANG)
      return status if status
      break if monotonic > deadline

      sleep 0.005
    end
    Process.kill(:KILL, pid)
    Process.wait(pid)
    flunk "the child has not ended in #{timeout} s"
  end
end
