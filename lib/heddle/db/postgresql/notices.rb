# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # A message of the server that is no error, such as RAISE NOTICE sends.
      #
      # @!attribute [r] severity
      #   @return [String] "NOTICE", "WARNING", "INFO", "LOG" or "DEBUG"
      # @!attribute [r] sql_state
      #   @return [String] five characters
      # @!attribute [r] message
      #   @return [String] with control characters as \\xNN
      # @!attribute [r] detail
      #   @return [String, nil]
      # @!attribute [r] hint
      #   @return [String, nil]
      # @!attribute [r] context
      #   @return [String, nil] where the server was: the functions that called
      Notice = Struct.new(:severity, :sql_state, :message, :detail, :hint, :context) do
        # @api private
        # @param fields [Hash{String => String}] by their letters in the protocol
        def self.of(fields)
          new(fields["V"] || fields["S"] || "", fields["C"] || "", fields["M"] || "", *fields.values_at("D", "H", "W"))
        end
      end

      # Notices on a {Connection}. PostgreSQL only; other databases raise {Unsupported}.
      module Notices
        # Calls the block with each notice, after the operation in which it came. Without a block, notices are dropped
        # again, as they are at first. What the block raises is raised by that operation, which has been done.
        #
        # @yieldparam notice [Notice]
        # @return [self]
        # @raise [Unsupported]
        def on_notice(&handler)
          need_driver(:on_notice, :take_notices)
          @driver.notices = !handler.nil?
          @notice_handler = handler
          extend Delivery if handler
          self
        end

        # Wraps operations of those connections that have a handler.
        #
        # @api private
        module Delivery
          private

          def talk(&block)
            value = super
            deliver_notices
            value
          rescue ServerError
            deliver_notices
            raise
          end

          def deliver_notices
            return unless @notice_handler

            @driver.take_notices.each { |fields| @notice_handler.call(Notice.of(fields)) }
          end
        end
        private_constant :Delivery
      end
    end
  end
end
