# frozen_string_literal: true

require "rbconfig"

# System calls that Ruby does not see, for processes without gems (Fiddle is a gem from Ruby 3.5 on). Each processor has
# numbers of its own; arm64 lacks those that newer ones have replaced.
module SystemCalls
  NUMBERS = {
    "x86_64" => {close: 3, dup3: 292, prctl: 157, ptrace: 101, sendfile: 40, epoll_waits: [232, 281, 441]},
    "aarch64" => {close: 57, dup3: 24, prctl: 167, ptrace: 117, sendfile: 71, epoll_waits: [22, 441]}
  }.fetch(RbConfig::CONFIG["host_cpu"], {}).freeze
  PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2

  def self.here? = NUMBERS.any? && RUBY_PLATFORM.include?("linux")

  def self.close(descriptor) = quietly { syscall(NUMBERS.fetch(:close), descriptor) }

  def self.dup2(from, to) = quietly { syscall(NUMBERS.fetch(:dup3), from, to, 0) }

  # From now on the kernel refuses these system calls to the calling thread, as when a program enters a sandbox at run
  # time. Raises SystemCallError where this machine does not let a process filter its system calls.
  def self.refuse(error, *numbers)
    load, equal, answer = 0x20, 0x15, 0x06 # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
    steps = [[load, 0, 0, 0]]
    numbers.each_with_index { |number, index| steps << [equal, numbers.size - index, 0, number] }
    steps << [answer, 0, 0, 0x7fff0000] << [answer, 0, 0, 0x00050000 | error::Errno]
    filter = steps.map { |step| step.pack("SCCL") }.join
    program = [steps.size, filter].pack("Sx6p") # addresses: syscall takes no String with zero bytes
    quietly { syscall(NUMBERS.fetch(:prctl), PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }
    set_filter([program].pack("p").unpack1("J"))
  end

  def self.ask_to_be_traced = quietly { syscall(NUMBERS.fetch(:ptrace), 0, 0, 0, 0) } # PTRACE_TRACEME

  # @param address [Integer] of a struct sock_fprog
  def self.set_filter(address)
    quietly { syscall(NUMBERS.fetch(:prctl), PR_SET_SECCOMP, SECCOMP_MODE_FILTER, address) }
  end

  # Kernel#syscall warns that Fiddle does it better.
  def self.quietly
    verbose, $VERBOSE = $VERBOSE, nil
    yield
  ensure
    $VERBOSE = verbose
  end
  private_class_method :quietly
end
