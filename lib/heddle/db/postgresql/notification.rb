# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # What another connection sent by NOTIFY.
      #
      # @!attribute [r] channel
      #   @return [String]
      # @!attribute [r] payload
      #   @return [String] empty for none
      # @!attribute [r] process_id
      #   @return [Integer] the server's number of the connection that sent it
      Notification = Struct.new(:channel, :payload, :process_id)
    end
  end
end
