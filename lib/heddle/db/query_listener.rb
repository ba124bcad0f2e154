# frozen_string_literal: true

module Heddle
  module DB
    # The return value of {Connection#on_query}.
    class QueryListener
      # Exceptions of Thread#raise that arrive while a handler runs are not the handler's errors.
      INTERRUPTS = {DeadlineExceeded => :immediate, StandardError => :never}.freeze
      private_constant :INTERRUPTS

      # @api private
      def initialize(owner, handler)
        @owner = owner
        @handler = handler
      end

      # Ends the listening. Closing twice is harmless.
      def close
        QueryListeners.remove(@owner, self)
        nil
      end

      # The handler's errors do not fail the query: they are printed, once.
      #
      # @api private
      def call(event)
        return tell(event) if Fiber.current_scheduler # Ruby keeps masks for each thread, not for each fiber

        Thread.handle_interrupt(INTERRUPTS) { tell(event) }
      end

      private

      def tell(event)
        @handler.call(event)
      rescue => error
        # The limit of a deadline around the query still holds.
        raise if error.is_a?(DeadlineExceeded) && (remaining = Heddle.remaining) && remaining <= 0
        return if @warned

        @warned = true
        warn "heddle: a handler of on_query raised #{error.class}: #{error.message} " \
          "(#{error.backtrace&.first}); its next errors are not printed"
      end
    end
  end
end
