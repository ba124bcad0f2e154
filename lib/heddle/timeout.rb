# frozen_string_literal: true

require "timeout"
require_relative "../heddle"

module Heddle
  # `require "heddle/timeout"` makes Timeout.timeout use Heddle's timers: in tasks those of the loop, in plain threads
  # those of the helper thread for deadlines. A timeout that does not fire then costs about as much as a
  # {Heddle.deadline}. Without this file it costs a thread, or two switches between threads, for each call.
  #
  # The semantics stay Ruby's: the exception is raised once, and not again in later waits; without a class of exception,
  # nothing inside the block can rescue it. In tasks that holds on every Ruby, also without this file. Under another
  # scheduler nothing changes.
  module TimeoutSupport
    # Prepended to Timeout; its `timeout` is in scheduler/timeout.c.
    #
    # @api private
    module Front; end

    ::Timeout.singleton_class.prepend(Front)

    # The same for classes that include Timeout.
    module Included
      private

      def timeout(...) = ::Timeout.timeout(...)

      ::Timeout.prepend(self)
    end
    private_constant :Included
  end

  TimeoutSupport.enable
end
