# frozen_string_literal: true

# Some gems that come with Ruby warn that they will become separate gems.
verbose, $VERBOSE = $VERBOSE, nil
require "fiddle"
$VERBOSE = verbose

# System calls that Ruby does not see, as a C extension makes them.
module NativeCalls
  LIBC = Fiddle::Handle::DEFAULT

  def self.define(name, *types)
    function = Fiddle::Function.new(LIBC[name], types, Fiddle::TYPE_INT)
    define_singleton_method(name) do |*arguments|
      result = function.call(*arguments)
      raise SystemCallError.new(name, Fiddle.last_error) if result < 0

      result
    end
  end
  private_class_method :define

  define "close", Fiddle::TYPE_INT
  define "dup2", Fiddle::TYPE_INT, Fiddle::TYPE_INT
  define "fork"
  define "mprotect", Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T, Fiddle::TYPE_INT

  # The errno that the calling thread's last system call appears to have set.
  def self.errno=(number)
    location = Fiddle::Function.new(LIBC["__errno_location"], [], Fiddle::TYPE_VOIDP).call
    location[0, Fiddle::SIZEOF_INT] = [number].pack("i")
  end

  RECV = Fiddle::Function.new(LIBC["recv"],
    [Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP, Fiddle::TYPE_SIZE_T, Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)
  private_constant :RECV

  # Waits for a byte like an extension that keeps the GVL. No Ruby thread runs meanwhile.
  def self.recv_holding_the_lock(descriptor) = RECV.call(descriptor, "\0".b, 1, 0)
end
