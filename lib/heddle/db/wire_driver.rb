# frozen_string_literal: true

module Heddle
  module DB
    # The part of {Driver} that is the same for all drivers that speak their server's wire protocol: an object of C, the
    # protocol, has the exchanges with the server, on a {Stream}. A class that includes this sets +@protocol+ and
    # +@stream+ when it connects, and has these private methods:
    #
    # - +goodbye+: the bytes that end a session
    # - +stop_query+: has the server stop what this connection asked, by another connection; raises nothing
    #
    # @api private
    module WireDriver
      include Driver

      # Seconds that the last words may take.
      GOODBYE = 1

      # Seconds for the answers of queries that nobody waits for any more.
      LAST_ANSWER = 0.5
      private_constant :GOODBYE, :LAST_ANSWER

      # @return [Heddle::Stream]
      attr_reader :stream

      # @return [Protocol]
      def native = @protocol

      def execute(statement, arguments) = @protocol.run(statement, arguments)

      def command(sql) = @protocol.run_text(sql)

      def release(statement) = @protocol.close_later(statement)

      def owns?(statement) = @protocol.owns?(statement)

      def closes = @protocol.closes

      def flush_closes = @protocol.flush_closes

      def in_transaction? = @protocol.in_transaction?

      def healthy? = @protocol.owed.zero? && @stream.healthy?

      def at_rest? = @protocol.owed.zero? && !closed?

      def closed? = @protocol.closed?

      def forked? = @protocol.forked?

      # In a child of fork the socket is closed, and the server hears nothing: the connection is the parent's.
      def close
        return @protocol.discard if forked?
        return if closed?

        @stream.write_timeout = GOODBYE
        @stream.write(goodbye) unless @protocol.busy? || @protocol.owed > 0
        @stream.close
      rescue IOError, SystemCallError, OpenSSL::SSL::SSLError, DeadlineExceeded
        nil # the server had already closed the socket
      ensure
        @stream.poison # also after an interrupt
      end

      def replies_to_drop? = @protocol.owes_to_nobody? && !closed?

      def drop_replies
        Heddle.deadline(LAST_ANSWER) { @protocol.drop_replies } if replies_to_drop?
        dropped = !closed?
      rescue DeadlineExceeded, IOError, SystemCallError, OpenSSL::SSL::SSLError
        raise if Heddle.remaining&.zero?

        false
      ensure
        abandon(false) unless dropped
      end

      # An unread answer would be taken for the answer to a later request.
      def abandon(lost)
        return @protocol.discard if forked?
        return if @abandoned || (!closed? && @protocol.owed.zero?)

        @abandoned = true
        @stream.poison
        stop_query unless lost || @protocol.owed.zero?
      end

      # The server has closed the connection already, and runs nothing for it.
      def close_silently
        @abandoned = true
        @stream.poison
      end
    end
    private_constant :WireDriver
  end
end
