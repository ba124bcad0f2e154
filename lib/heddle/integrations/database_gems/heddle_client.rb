# frozen_string_literal: true

module Heddle
  module DatabaseGems
    # Heddle's own connections to databases: they stop an interrupted query and close themselves.
    #
    # @api private
    class HeddleClient
      def prepare(_raw) = nil

      def query = yield

      def settled?(raw, _error) = !raw.closed?

      # A closed one leaves the pool when somebody is to get it.
      def clean?(_raw) = true

      # A connection of the process that this one was forked from counts as closed.
      def closed?(raw) = raw.closed?

      def idle?(raw) = raw.at_rest?

      def close(raw) = raw.close
    end
  end
end
