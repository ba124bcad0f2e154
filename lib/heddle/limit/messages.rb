# frozen_string_literal: true

module Heddle
  class Limit
    # Hears, in a task of the coordinator's loop, of permits that other processes granted.
    #
    # @api private
    class Messages
      RETRY_SECONDS = 0.5
      READ_SECONDS = 5
      private_constant :RETRY_SECONDS, :READ_SECONDS

      def initialize(config, token, coordinator)
        @config = config
        @channel = "heddle:limit:#{token}"
        @coordinator = coordinator
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
        silent = false
        loop do
          event, _, content = subscription.next_event(READ_SECONDS)
          silent = event ? false : ask(subscription, silent)
          case event
          when "subscribe"
            @listening = true
            @coordinator.look # permits may have been granted before
          when "message"
            @coordinator.granted([content])
          end
        end
      ensure
        @listening = false
        @coordinator.look # meanwhile it must ask
        subscription&.close
      end

      # Nothing was said for a while. A firewall may have forgotten the connection, without a word to either end.
      #
      # @param asked [Boolean] whether Redis has been asked before, and did not answer
      # @return [true]
      def ask(subscription, asked)
        raise RedisClient::ReadTimeoutError, "Redis does not answer on the connection for messages" if asked

        subscription.call("PING")
        true
      end
    end
    private_constant :Messages
  end
end
