# frozen_string_literal: true

module Heddle
  module RubyFixes
    # Thread#join(limit) never gives up under a scheduler on Ruby 3.1.2: it calls `block` again and again
    # (https://github.com/ruby/ruby/pull/7903, in 3.3 and in later patch levels of 3.2).
    module ThreadJoin
      # Raised at the limit, and rescued here.
      class Expired < Exception # rubocop:disable Lint/InheritException
      end
      private_constant :Expired

      def join(limit = nil)
        scheduler = Fiber.current_scheduler
        return super if limit.nil? || !scheduler.is_a?(Loop)
        return (super() unless alive?) if limit <= 0

        begin
          scheduler.timeout_after(limit, Expired) { super() }
        rescue Expired
          nil
        end
      end

      Thread.prepend(self)
    end
  end
end
