# frozen_string_literal: true

require_relative "../slowness"

module ApiFuzz
  # Runs the program in a child with a hard deadline: a program that hangs may hold the GVL, and then none of its
  # threads could end it. A late child is asked for its backtraces (SIGUSR2), then for Ruby's report of the C stack
  # (SIGSEGV), then killed.
  class Supervisor
    GRACE = 5

    # @param environment [Hash] for the program
    # @param orphans [Numeric, nil] seconds that its own children may outlive it; nil: any, they are killed with it
    # @yieldparam status [Process::Status] the block says whether it may end so; without a block, it must succeed
    def initialize(program, seconds:, patience:, environment: {"API_FUZZ_CHILD" => "1"}, orphans: nil, &allowed)
      @program = program
      @limit = seconds + Slowness.stretch(patience)
      @environment = environment
      @orphans = orphans
      @allowed = allowed || :success?.to_proc
    end

    # @yieldparam line [String] of what the program, or this, prints; without a block it is printed
    # @return [Boolean] whether all invariants held
    def run(&print)
      @print = print || method(:puts)
      library = File.expand_path("../../../lib", __dir__)
      reader, writer = IO.pipe
      command = [RbConfig.ruby, "-W:no-experimental", "-I#{library}", @program]
      pid = Process.spawn(@environment, *command, out: writer, err: writer, pgroup: true)
      writer.close
      copy = Thread.new { pass_on(reader) }
      held = held?(pid)
      end_group(pid)
      crashed = copy.value
      held && !crashed
    ensure
      end_group(pid) if pid
    end

    private

    def held?(pid)
      ended = wait(pid, @limit)
      status = ended || stop(pid)
      return @print.call("the child ended by #{status}").then { false } unless ended && @allowed.call(status)
      return true if !@orphans || group_ends?(pid)

      @print.call("children of the child are still there, #{@orphans} s after its end")
      false
    end

    # Prints all output. Returns whether a child of the program has crashed, which may have outlived its parent.
    def pass_on(reader)
      crashed = false
      reader.each_line do |line|
        @print.call(line)
        crashed ||= line.include?("[BUG]") || line.include?("FAULT in a child")
      end
      crashed
    end

    def stop(pid)
      @print.call("supervisor: not done after #{@limit} s")
      %i[USR2 SEGV KILL].each do |signal|
        Process.kill(signal, pid)
        status = wait(pid, GRACE)
        return status if status
      end
    end

    def wait(pid, seconds)
      deadline = now + seconds
      loop do
        _, status = Process.wait2(pid, Process::WNOHANG)
        return status if status
        return nil if now > deadline

        sleep 0.05
      end
    end

    def group_ends?(pid)
      deadline = now + Slowness.stretch(@orphans)
      loop do
        Process.kill(0, -pid)
        return false if now > deadline

        sleep 0.05
      end
    rescue Errno::ESRCH
      true
    end

    # Ends children of the program that are left.
    def end_group(pid)
      Process.kill(:KILL, -pid)
    rescue Errno::ESRCH, Errno::EPERM
      nil
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
