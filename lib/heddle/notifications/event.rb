# frozen_string_literal: true

require "active_support/notifications"

module Heddle
  module Notifications
    # An event that is over when it is made.
    class Event < ActiveSupport::Notifications::Event
      # @param name [String]
      # @param ended [Float] seconds since 1970
      # @param seconds [Float] how long it took
      # @param payload [Hash]
      # @return [void]
      def self.publish(name, ended, seconds, payload)
        id = ActiveSupport::Notifications.instrumenter.id
        ActiveSupport::Notifications.publish_event(new(name, ended - seconds, ended, id, payload))
      end

      def time = Time.at(super)

      def end = Time.at(super)
    end
  end
  private_constant :Notifications
end
