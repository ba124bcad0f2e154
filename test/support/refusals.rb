# frozen_string_literal: true

require "tmpdir"

# Runs commands as on a kernel that refuses a system call, or is older than this one. The tools for that are compiled
# on the spot.
module Refusals
  # The number of this system call is the same on every architecture of Linux.
  IO_URING_SETUP = 425
  EPOLL_PWAIT2 = 441

  private

  # Yields a command prefix that makes the system call of that number fail with that SystemCallError.
  def refusing(number, error)
    compiled("refuse_syscall.c") do |launcher|
      command = [launcher, number.to_s, error::Errno.to_s]
      unless system(*command, "true", err: File::NULL)
        skip "this machine does not let a process filter its system calls"
      end
      yield command
    end
  end

  # Yields the environment for an io_uring with fewer features than this kernel's; see other_io_uring.c for the
  # settings.
  def with_other_io_uring(settings)
    skip "no io_uring here" unless Heddle::Scheduler.backends.include?("uring")
    compiled("other_io_uring.c", "-shared", "-fPIC") do |library|
      yield({"LD_PRELOAD" => [ENV["LD_PRELOAD"], library].compact.join(" "), "HEDDLE_BACKEND" => "uring", **settings})
    end
  end

  def compiled(source, *options)
    compiler = %w[cc gcc clang].find { |name| system(name, "--version", out: File::NULL, err: File::NULL) }
    skip "no C compiler to build #{source}" unless compiler
    Dir.mktmpdir do |folder|
      program = File.join(folder, File.basename(source, ".c"))
      assert system(compiler, *options, "-o", program, File.join(__dir__, source)), "#{source} does not compile"
      yield program
    end
  end
end
