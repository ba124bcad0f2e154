# frozen_string_literal: true

require "heddle"
require "socket"
require "rbconfig"
require "stringio"
require "tempfile"
require_relative "../../lab/lib/heddle/lab/bundled_gems"

# Helpers that tests of the loop share. Times are in seconds.
module LoopHelpers
  ROOT = File.expand_path("../..", __dir__)

  OTHER_GEMS = ["#{ROOT}/lab/lib", "#{ROOT}/odbc/lib"].freeze # of this checkout, as the bundle has them
  private_constant :OTHER_GEMS

  # @param names [Array<String>, nil] see Heddle::Lab::BundledGems.folder
  # @return [Hash{String => String, nil}] the environment of a process that has the bundle's gems, and no Bundler
  def self.bundle(names = nil)
    options = ENV.fetch("RUBYOPT", "").split.reject { |option| option.include?("bundler") }.join(" ")
    folder = Heddle::Lab::BundledGems.folder(names)
    bundlers = ENV.keys.grep(/\ABUNDLER?_/).to_h { |name| [name, nil] } # newer RubyGems load Bundler for BUNDLER_SETUP
    gems = folder ? {"GEM_HOME" => folder, "GEM_PATH" => folder} : {}
    {**bundlers, **gems, "RUBYOPT" => (options unless options.empty?)}
  end

  # The folders of libraries that children need without gems. From Ruby 4.0 on fiddle, with which tests call C
  # functions, is a gem. Net::HTTP is this process's, of a gem or of a folder of -I, and not the one that Ruby has
  # besides.
  #
  # @return [Array<String>]
  def self.libraries
    @libraries ||= begin
      net_http = %w[net/http net/protocol].map { |name| $LOAD_PATH.resolve_feature_path(name).last[%r{.*(?=/net/)}] }
      [*Gem.loaded_specs["fiddle"]&.full_require_paths, *net_http.uniq]
    end
  end

  # What a child process left: the text of both outputs, and its Process::Status.
  Outcome = Struct.new(:out, :err, :status)

  # Runs Ruby code in its own process, with the library loaded: code with limits, signals or exits that must not hit
  # this process. Loading gems is nine tenths of a process's start, so no gem is there unless +gems+ is true. Then those
  # of the bundle are, without Bundler, which would load all of them.
  # +options+ go to Process.spawn. Yields the pid and the file that takes the child's output.
  def in_child(code, env: {}, timeout: 30, launcher: [], gems: false, heddle: true, **options)
    out, err = Tempfile.new("out"), Tempfile.new("err")
    program = "$stdout.sync = true; #{"require 'heddle'; " if heddle}require 'socket'\n#{code}"
    env = {**(gems ? LoopHelpers.bundle : {"RUBYOPT" => nil}), **env}
    folders = ["#{ROOT}/lib", *(gems ? OTHER_GEMS : LoopHelpers.libraries)]
    command = [*launcher, RbConfig.ruby, *(gems ? [] : "--disable=gems"), "-W:no-experimental",
      *folders.map { |folder| "-I#{folder}" }, "-e", program]
    pid = Process.spawn(env, *command, out: out.path, err: err.path, in: File::NULL, **options)
    yield pid, out if block_given?
    status = reap(pid, timeout)
    Outcome.new(File.read(out.path), File.read(err.path), status)
  ensure
    [out, err].compact.each(&:close!)
  end

  # Like #in_child, but the child must exit with status 0. Returns its output.
  def assert_child(code, **options, &block)
    outcome = in_child(code, **options, &block)
    assert outcome.status&.success?, "the child ended with #{outcome.status.inspect}: #{outcome.out}#{outcome.err}"
    outcome.out
  end

  # Seconds: the longest time that another task had to wait for its turn while the block ran, and the block's own
  # time.
  def gap_and_time
    longest = took = 0
    Heddle.run do
      beating = true
      Heddle.spawn do
        last = monotonic
        while beating
          sleep(0.002)
          longest = [longest, monotonic - last].max
          last = monotonic
        end
      end
      start = monotonic
      yield
      took = monotonic - start
      sleep(0.005)
      beating = false
    end
    [longest, took]
  end

  # How many turns another task, which sleeps a millisecond before each, has while the block runs.
  #
  # @param each_turn [#call, nil] called in each turn, with its number
  def turns_beside(each_turn = nil)
    Heddle.run do
      turns = 0
      other = Heddle.spawn do
        loop do
          sleep(0.001)
          turns += 1
          each_turn&.call(turns)
        end
      end
      yield
      other.cancel
      turns
    end
  end

  # A block for #in_child and #assert_child: it sends +signal+ once the child has printed +line+.
  def signal_at(line, signal)
    lambda do |pid, out|
      wait_until { File.read(out.path).include?("#{line}\n") }
      Process.kill(signal, pid)
    end
  end

  # Raises this process's limit of descriptors to +wanted+ for the block, or as far as the hard limit allows. Skips
  # with less than +least+.
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

  # A server on a free port of loopback. The callable serves each connection in a thread.
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

  # Returns what the block writes to $stderr.
  def stderr_of
    before = $stderr
    $stderr = StringIO.new
    yield
    $stderr.string
  ensure
    $stderr = before
  end

  # Runs the block on its own thread, which does not have this thread's scheduler. Returns its value or raises its
  # error.
  def in_thread(&block)
    in_background(&block).value
  end

  # Starts the block on a thread, for blocks that mostly wait, beside others like it. Its +value+ returns the block's
  # value or raises its error, including a failed assertion.
  def in_background(&block)
    Thread.new(&block).tap { |thread| thread.report_on_exception = false }
  end

  private

  def reap(pid, timeout)
    limit = SchedulingDelay::Limit.new(timeout, pid)
    loop do
      _, status = Process.wait2(pid, Process::WNOHANG)
      return status if status
      break if limit.passed?

      sleep 0.005
    end
    Process.kill(:KILL, pid)
    Process.wait(pid)
    flunk "the child did not end within #{Slowness.stretch(timeout)} s"
  end
end
