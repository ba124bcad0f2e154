# frozen_string_literal: true

module Heddle
  module RubyFixes
    # Fiber#raise of a fiber that waits in the loop transfers to that fiber, and the calling fiber would never run
    # again, since the loop does not know that it is ready. This patch makes the caller ready first. (All Rubies:
    # schedulers that resume their fibers do not need this.)
    module FiberRaise
      def raise(*arguments, **options)
        scheduler = Fiber.scheduler
        return super unless scheduler.is_a?(Loop)

        exception = RubyFixes.exception_of(*arguments, **options)
        scheduler.raise_in(self, exception) ? nil : super(exception, **RubyFixes.cause_of(exception))
      end

      Fiber.prepend(self)
    end

    # Since Ruby 4.0, Fiber#raise replaces an exception's cause, unless it is named.
    if RUBY_VERSION >= "4.0"
      def self.cause_of(exception) = {cause: exception.cause}
    else
      def self.cause_of(_exception) = {}
    end

    # The exception that Kernel#raise would raise for these arguments.
    def self.exception_of(*arguments, **options)
      keep_error do
        ::Kernel.raise(*arguments, **options)
      rescue Exception => exception # rubocop:disable Lint/RescueException
        exception.set_backtrace(nil) if exception.backtrace&.first&.include?(__method__.to_s)
        exception
      end
    end
  end
end
