# frozen_string_literal: true

module Heddle
  module DB
    # Messages between connections (LISTEN and NOTIFY) on a {Connection}. Only where the database has them
    # ({PostgreSQL}); others raise {Unsupported}. A connection keeps up to 10,000 notifications (64 MiB) that nobody
    # has taken, and then drops the oldest. A pool ends what its callers listen to.
    module Listening
      # Seconds to end listening after the caller's deadline or cancel.
      UNLISTEN_TIME = 1
      private_constant :UNLISTEN_TIME

      # Listens to channels. With a block, waits and calls the block with each notification, until the block is left,
      # and ends listening to these channels then. The block may use the connection.
      #
      # @example
      #   db.listen("jobs") { |n| work(n.payload) }
      # @param channels [Array<String>] taken literally: upper and lower case are different
      # @yieldparam notification [PostgreSQL::Notification]
      # @return [self]
      # @raise [ServerError] the connection stays open
      # @raise [ConnectionLost] the connection is closed
      # @raise [DeadlineExceeded] the connection is closed, unless it only waited for a notification
      # @raise [Unsupported] the database does not have it; nothing was sent
      # @raise [TransactionError] with a block, in a transaction: the server sends notifications only between
      #   transactions
      def listen(*channels)
        need_driver(:listen, :next_notification)
        raise ArgumentError, "listen needs the name of a channel: db.listen(\"name\")" if channels.empty?

        channels.each { |channel| exec(@driver.listen_sql(channel_text(channel))) }
        return self unless block_given?

        begin
          loop { yield wait_for_notification }
        ensure
          # Also after the caller's deadline or cancel.
          Heddle.shield(UNLISTEN_TIME) { unlisten(*channels) } unless closed? || @driver.failed?
        end
      end

      # @param channels [Array<String>] none: all
      # @return [self]
      # @raise [ServerError] the connection stays open
      # @raise [ConnectionLost, DeadlineExceeded] the connection is closed; see {Connection#query}
      # @raise [Unsupported] the database does not have it; nothing was sent
      def unlisten(*channels)
        need_driver(:unlisten, :next_notification)
        exec(@driver.unlisten_sql(nil)) if channels.empty?
        channels.each { |channel| exec(@driver.unlisten_sql(channel_text(channel))) }
        self
      end

      # Sends a notification to all connections that listen, at the end of the transaction.
      #
      # @param channel [String]
      # @param payload [String] less than 8000 bytes
      # @return [self]
      # @raise [ServerError] the connection stays open
      # @raise [ConnectionLost, DeadlineExceeded] the connection is closed; see {Connection#query}
      # @raise [Unsupported] the database does not have it; nothing was sent
      def notify(channel, payload = "")
        need_driver(:notify, :next_notification)
        query(@driver.notify_sql, channel_text(channel), payload)
        self
      end

      # Waits for a notification. Those that came during queries come first, in their order. A deadline or a cancel
      # in this wait leaves the connection open.
      #
      # @param timeout [Numeric, nil] seconds; nil: without a limit; 0: only takes what has come
      # @return [PostgreSQL::Notification, nil] nil when the time is over
      # @raise [ConnectionLost] the connection is closed
      # @raise [DeadlineExceeded] the connection stays open
      # @raise [Unsupported] the database does not have it; nothing was sent
      # @raise [TransactionError] in a transaction: the server sends notifications only between transactions
      def wait_for_notification(timeout = nil)
        need_driver(:wait_for_notification, :next_notification)
        timeout = Options.seconds(:timeout, timeout) unless timeout == 0
        exchange do
          if (kept = @driver.queued_notification)
            next kept
          end

          if in_transaction?
            raise TransactionError, "the server sends notifications only between transactions: end this one first"
          end

          checked(@driver.next_notification(timeout), "wait for a notification")
        end
      end

      private

      def channel_text(channel)
        text = channel.to_s
        raise ArgumentError, "a channel needs a name" if text.empty?
        raise ArgumentError, "a channel's name must not contain a NUL" if text.include?("\0")

        text
      end
    end
  end
end
