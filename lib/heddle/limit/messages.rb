# frozen_string_literal: true

module Heddle
  class Limit
    # Hears, in a task of the agent's loop, of places that other processes granted.
    #
    # @api private
    class Messages
      RETRY_SECONDS = 0.5
      READ_SECONDS = 5
      private_constant :RETRY_SECONDS, :READ_SECONDS

      def initialize(config, token, agent)
        @config = config
        @channel = "heddle:limit:#{token}"
        @agent = agent
      end

      # Whether a message would arrive.
      def listening? = @listening

      # Listens from now on.
      def listen
        return if @task && !@task.ended?

        @task = Heddle.spawn(name: "heddle limits: messages") { listen_again }
      end

      def stop = @task&.cancel

      private

      def listen_again
        loop do
          hear
        rescue RedisClient::Error
          sleep(RETRY_SECONDS)
        end
      end

      def hear
        subscription = @config.new_client.pubsub
        subscription.call("SUBSCRIBE", @channel)
        loop do
          event, _, content = subscription.next_event(READ_SECONDS)
          case event
          when "subscribe"
            @listening = true
            @agent.look # places may have been granted before
          when "message"
            @agent.granted([content])
          end
        end
      ensure
        @listening = false
        @agent.look # meanwhile it must ask
        subscription&.close
      end
    end
    private_constant :Messages
  end
end
