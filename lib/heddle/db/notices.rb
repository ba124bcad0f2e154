# frozen_string_literal: true

module Heddle
  module DB
    # Notices on a {Connection}: messages of the server other than errors. Only where the database has them
    # ({PostgreSQL}); others raise {Unsupported}.
    module Notices
      # Calls the block with each notice, after the operation in which it came; at once with the warnings of the log-in,
      # such as that the password will expire. Without a block, notices are dropped again, as they are at first. What
      # the block raises is raised by that operation, which has been done.
      #
      # @yieldparam notice [PostgreSQL::Notice]
      # @return [self]
      # @raise [Unsupported] the database does not have it; nothing was sent
      def on_notice(&handler)
        need_driver(:on_notice, :take_notices)
        @driver.notices = !handler.nil?
        @notice_handler = handler
        self.notifying = handler
        return self unless handler

        extend Delivery

        deliver_notices
        self
      end

      # Wraps operations of those connections that have a handler.
      #
      # @api private
      module Delivery
        private

        def exchange(sql = nil, &block)
          value = super
          deliver_notices
          value
        rescue ServerError
          deliver_notices
          raise
        end

        def deliver_notices
          return unless @notice_handler

          @driver.take_notices.each { |notice| @notice_handler.call(notice) }
        end
      end
      private_constant :Delivery
    end
  end
end
