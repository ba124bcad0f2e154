# frozen_string_literal: true

require_relative "io_select"

module Heddle
  module RubyFixes
    # Kernel#select does the same as IO.select, but is a separate method: on 3.1 it, too, stops the whole thread.
    module KernelSelect
      private

      def select(readables, writables = nil, exceptables = nil, timeout = nil)
        scheduler = Fiber.current_scheduler
        return super unless scheduler.is_a?(Loop)

        scheduler.io_select(readables, writables, exceptables, timeout)
      end

      ::Kernel.prepend(self)
      ::Kernel.singleton_class.prepend(IOSelect) # Kernel.select
    end
  end
end
