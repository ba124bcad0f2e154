# frozen_string_literal: true

require "digest"
require "fileutils"
require "tmpdir"

# Runs commands as on a kernel that refuses a system call, or is older than this one. The tools for that are compiled
# at the first use.
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

  # Yields the path of the program, by a link in a folder of the block's own.
  def compiled(source, *options)
    program = Refusals.program(File.join(__dir__, source), options) || skip("no C compiler to build #{source}")
    Dir.mktmpdir do |folder|
      link = File.join(folder, File.basename(program))
      File.symlink(program, link)
      yield link
    end
  end

  FOLDER = File.expand_path("../../tmp/refusals", __dir__)
  private_constant :FOLDER

  class << self
    # Compiled once for all processes that have this compiler: a chroot has another one.
    #
    # @return [String, nil] the path of the program; nil without a compiler
    def program(source, options)
      name, version = compiler
      return unless name

      made_of = [RUBY_PLATFORM, version, *options, File.read(source)]
      folder = File.join(FOLDER, Digest::SHA256.hexdigest(made_of.join("\0"))[0, 16])
      path = File.join(folder, File.basename(source, ".c"))
      compile([name, *options, source], path) unless File.exist?(path)
      path
    end

    private

    # Its name, and what it says about itself.
    def compiler
      @compiler ||= %w[cc gcc clang].lazy.map { |name| [name, version_of(name)] }.find(&:last) || [nil, nil]
    end

    def version_of(name)
      IO.popen([name, "--version", err: File::NULL], &:read)
    rescue SystemCallError
      nil
    end

    # Another process may do the same.
    def compile(command, path)
      FileUtils.mkdir_p(File.dirname(path))
      made = "#{path}.#{Process.pid}"
      system(*command, "-o", made) || raise("#{command.last} does not compile")
      File.rename(made, path)
    end
  end
end
