# frozen_string_literal: true

require_relative "core/required_gem"
Heddle::RequiredGem.load("active_support", "heddle/notifications", "activesupport")
require_relative "../heddle"
require_relative "db"
require_relative "db/query_listeners"
require_relative "notifications/event"

module Heddle
  # Publishes each statement of Heddle::DB as the event +sql.heddle+ of ActiveSupport::Notifications. Its payload has
  # +:sql+, +:rows+ and +:cached+, and for an error +:exception+ and +:exception_object+ as Rails' own events do.
  #
  # @example
  #   require "heddle/notifications"
  #   ActiveSupport::Notifications.subscribe("sql.heddle") { |event| puts "#{event.payload[:sql]} #{event.duration}" }
  #
  # @api private
  module Notifications
    NAME = "sql.heddle"

    class << self
      def publish(event)
        return unless ActiveSupport::Notifications.notifier.listening?(NAME)

        Event.publish(NAME, Process.clock_gettime(Process::CLOCK_REALTIME), event.seconds, payload(event))
      end

      private

      def payload(event)
        payload = {sql: event.sql, rows: event.rows, cached: event.cached}
        if (error = event.error)
          payload[:exception] = [error.class.name, error.message]
          payload[:exception_object] = error
        end
        payload
      end
    end

    DB.on_query { |event| publish(event) }
  end
  private_constant :Notifications
end
