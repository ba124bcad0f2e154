# frozen_string_literal: true

module Heddle
  module RubyFixes
    # IO.select stops the whole thread on Ruby 3.1, even under a scheduler: the hook `io_select` came with Ruby 3.2
    # (https://bugs.ruby-lang.org/issues/19060).
    module IOSelect
      def select(readables, writables = nil, exceptables = nil, timeout = nil)
        scheduler = Fiber.current_scheduler
        return super unless scheduler.is_a?(Loop)

        scheduler.io_select(readables, writables, exceptables, timeout)
      end

      IO.singleton_class.prepend(self)
    end
  end
end
