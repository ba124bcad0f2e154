# frozen_string_literal: true

# System calls that Ruby does not see, for processes without gems (Fiddle is a gem from Ruby 3.5 on). The numbers are
# those of x86-64.
module SystemCalls
  CLOSE, DUP2, PRCTL = 3, 33, 157
  PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2

  def self.here? = RbConfig::CONFIG["host_cpu"] == "x86_64" && RUBY_PLATFORM.include?("linux")

  def self.close(descriptor) = quietly { syscall(CLOSE, descriptor) }

  def self.dup2(from, to) = quietly { syscall(DUP2, from, to) }

  # From now on the kernel refuses these system calls to the calling thread, as when a program enters a sandbox at run
  # time. Raises SystemCallError where this machine does not let a process filter its system calls.
  def self.refuse(error, *numbers)
    load, equal, answer = 0x20, 0x15, 0x06 # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
    steps = [[load, 0, 0, 0]]
    numbers.each_with_index { |number, index| steps << [equal, numbers.size - index, 0, number] }
    steps << [answer, 0, 0, 0x7fff0000] << [answer, 0, 0, 0x00050000 | error::Errno]
    filter = steps.map { |step| step.pack("SCCL") }.join
    program = [steps.size, filter].pack("Sx6p") # addresses: syscall takes no String with zero bytes
    quietly do
      syscall(PRCTL, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
      syscall(PRCTL, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, [program].pack("p").unpack1("J"))
    end
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
