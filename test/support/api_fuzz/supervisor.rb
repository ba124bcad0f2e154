# frozen_string_literal: true

require_relative "../slowness"

module ApiFuzz
  # Runs the program in a child with a hard deadline: a program that hangs may hold the GVL, and then none of its
  # threads could end it. A late child is asked for its backtraces (SIGUSR2), then for Ruby's report of the C stack
  # (SIGSEGV), then killed.
  class Supervisor
    GRACE = 5

    def initialize(program, seconds:, patience:)
      @program = program
      @limit = seconds + Slowness.stretch(patience)
    end

    # @return [Boolean] whether all invariants held
    def run
      library = File.expand_path("../../../lib", __dir__)
      reader, writer = IO.pipe
      command = [RbConfig.ruby, "-W:no-experimental", "-I#{library}", @program]
      pid = Process.spawn({"API_FUZZ_CHILD" => "1"}, *command, out: writer, err: writer, pgroup: true)
      writer.close
      copy = Thread.new { pass_on(reader) }
      status = wait(pid, @limit) || stop(pid)
      puts "the child ended by #{status}" unless status.success?
      end_group(pid)
      crashed = copy.value
      status.success? && !crashed
    ensure
      end_group(pid) if pid
    end

    private

    # Prints all output. Returns whether a child of the program has crashed, which may have outlived its parent.
    def pass_on(reader)
      crashed = false
      reader.each_line do |line|
        puts line
        crashed ||= line.include?("[BUG]") || line.include?("FAULT in a child")
      end
      crashed
    end

    def stop(pid)
      warn "supervisor: not done after #{@limit} s"
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

    # Ends children of the program that are left.
    def end_group(pid)
      Process.kill(:KILL, -pid)
    rescue Errno::ESRCH, Errno::EPERM
      nil
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
