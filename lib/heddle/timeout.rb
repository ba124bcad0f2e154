# frozen_string_literal: true

require "timeout"
require_relative "scheduler"

module Heddle
  # `require "heddle/timeout"` puts Timeout.timeout on Heddle's timers: in tasks the loop's, in plain threads the one
  # helper that keeps their deadlines. A timeout that does not fire then costs about what a {Heddle.deadline} does, in
  # place of a thread, or of two hand-overs between threads, for each call.
  #
  # What it means stays Ruby's: the exception is raised once, and is not raised again in later waits; without a class
  # nothing inside the block can rescue it. In tasks that holds with every Ruby, also without this file. Under a foreign
  # scheduler nothing changes.
  module TimeoutSupport
    # In front of Timeout's own; `timeout` is in scheduler/timeout.c.
    #
    # @api private
    module Front; end

    ::Timeout.singleton_class.prepend(Front)

    # The same for those who include Timeout.
    module Included
      private

      def timeout(...) = ::Timeout.timeout(...)

      ::Timeout.prepend(self)
    end
    private_constant :Included
  end

  TimeoutSupport.enable
end
