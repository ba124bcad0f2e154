# frozen_string_literal: true

require "fileutils"
require "heddle/cli"
require "heddle/cli/question"
require "socket"
require "stringio"
require "support/loop_helpers"
require "tmpdir"

# Processes that listen for `heddle ps`, and the command. Each test has a folder of sockets of its own.
module InsightHelpers
  include LoopHelpers

  def setup
    super
    @runtime = Dir.mktmpdir("heddle-insight")
    @before = ENV["XDG_RUNTIME_DIR"]
    ENV["XDG_RUNTIME_DIR"] = @runtime
  end

  def teardown
    ENV["XDG_RUNTIME_DIR"] = @before
    FileUtils.rm_rf(@runtime)
    super
  end

  # Runs the program, which prints "ready" once it is, and yields its pid. Kills it after the block.
  def looking_into(program, signal: :KILL, insight: true, **options)
    env = {"XDG_RUNTIME_DIR" => @runtime, "HEDDLE_INSIGHT" => ("1" if insight), **options.delete(:env).to_h}
    in_child(program, env: env, **options) do |pid, out|
      wait_until(30, what: "the program's start") do
        File.read(out.path).include?("ready\n")
      end
      yield pid, out
    ensure
      Process.kill(signal, pid)
    end
  end

  # The command's status and both of its outputs.
  def command(*argv)
    out, err = StringIO.new, StringIO.new
    status = Heddle::CLI.run(argv.map(&:to_s), out: out, err: err)
    [status, out.string, err.string]
  end

  # What the command prints; it must succeed.
  def heddle(*argv)
    status, out, err = command(*argv)
    assert_equal [0, ""], [status, err], out
    out
  end

  # The same of a process, as JSON. The block says when its state has been reached.
  def snapshot(pid, verb = "ps", *rest)
    last = nil
    wait_until(20, what: "a state of the process") do
      last = JSON.parse(heddle(verb, pid, *rest, "--json").lines.first)
      (!block_given? || yield(last)) ? last : nil
    end
  end

  # What the command says of this process, which answers so.
  def answered(answer, verb = "ps", *arguments, endless: false)
    FileUtils.mkdir_p("#{@runtime}/heddle", mode: 0o700)
    server = UNIXServer.new("#{@runtime}/heddle/#{Process.pid}.sock")
    asked = false
    thread = Thread.new do
      peer = server.accept
      asked = true
      peer.gets
      loop do
        peer.write(answer)
        break unless endless
      end
    rescue Errno::EPIPE, Errno::ECONNRESET
      nil
    ensure
      peer&.close
    end
    command(verb, Process.pid, *arguments)
  ensure
    thread.kill unless asked
    server.close
    thread.join
    FileUtils.rm_f(sockets)
  end

  def task(snapshot, name)
    snapshot["tasks"].find { |one| one["name"] == name }
  end

  def sockets = Dir.glob("#{@runtime}/heddle/*.sock")
end
