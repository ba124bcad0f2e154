# frozen_string_literal: true

module Heddle
  module DB
    # Keeps its queries until the block's end; see {Connection#pipeline}, +atomic+.
    #
    # @api private
    class AtomicPipeline < Pipeline
      # @param resolve see {Pipeline}
      def initialize(resolve, &run)
        super(1, resolve, &run)
      end

      # @api private for a future
      def answer
        return if @requests.empty? # the answers were lost

        raise TransactionError, "an atomic pipeline sends nothing before its block ends: ask for values after the block"
      end

      private

      def full? = false
    end
    private_constant :AtomicPipeline
  end
end
