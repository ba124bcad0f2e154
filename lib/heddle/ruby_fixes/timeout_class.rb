# frozen_string_literal: true

require "timeout"

module Heddle
  module RubyFixes
    # Timeout.timeout without a class passes Timeout::Error to a scheduler, as if the caller had asked for that class: a
    # client that rescues the error and retries runs for ever. Without a scheduler nothing inside the block can rescue
    # the error. (The gem timeout up to 0.4.1, with Ruby 3.1 to 3.3; the 0.4.3 of Ruby 3.4 passes an exception that no
    # client knows.)
    module TimeoutClass
      def timeout(seconds, klass = nil, message = nil, &block)
        return super if klass || !block || seconds.nil? || seconds.zero?

        scheduler = Fiber.current_scheduler
        scheduler.is_a?(Loop) ? scheduler.timeout_after(seconds, nil, message, &block) : super
      end

      ::Timeout.singleton_class.prepend(self)

      # The same for classes that include Timeout.
      module Included
        private

        def timeout(...) = ::Timeout.timeout(...)

        ::Timeout.prepend(self)
      end
      private_constant :Included
    end
  end
end
