# frozen_string_literal: true

require_relative "io_select"

module Heddle
  module Compat
    # Kernel#select is IO.select under another name, and a method of its own to Ruby: on 3.1 it stops the whole thread,
    # too.
    module KernelSelect
      private

      def select(readables, writables = nil, exceptables = nil, timeout = nil)
        scheduler = Fiber.current_scheduler
        return super unless scheduler.is_a?(Heddle::Scheduler)

        scheduler.io_select(readables, writables, exceptables, timeout)
      end

      ::Kernel.prepend(self)
      ::Kernel.singleton_class.prepend(IOSelect) # Kernel.select
    end
  end
end
