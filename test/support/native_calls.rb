# frozen_string_literal: true

# Some gems that come with Ruby say that they will be gems of their own one day.
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
end
