# frozen_string_literal: true

module Sequel
  module HeddlePostgreSQL
    # LISTEN, as Sequel's adapter +postgres+ has it. The wait is one of the scheduler: other tasks run meanwhile.
    module PostgreSQLListen
      # Waits for a notification, and ends listening.
      #
      # @param channels [Symbol, String, Array]
      # @option opts [#call] :after_listen is called with the connection once the server listens
      # @option opts [Boolean, #call] :loop whether to go on until the block is left, or :stop is thrown; an object is
      #   called with the connection after each notification, and when the timeout is over
      # @option opts [Numeric, #call] :timeout seconds to wait; an object is asked for them each time
      # @option opts [Symbol] :server the shard
      # @yieldparam channel [String]
      # @yieldparam process_id [Integer] the server's number of the connection that notified
      # @yieldparam payload [String]
      # @return [String, nil] the channel; nil when the time is over, and with :loop
      # @raise [Sequel::DatabaseError]; [Sequel::Error] for :loop without a block
      def listen(channels, opts = OPTS, &block)
        raise Error, "listen with :loop needs a block" if opts[:loop] && !block

        heddle_errors do
          synchronize(opts[:server]) do |conn|
            heddle_listening(conn, Array(channels)) do
              heddle_callers { opts[:after_listen]&.call(conn) }
              opts[:loop] ? heddle_listen_on(conn, opts, block) : heddle_notified(conn, opts, block)
            end
          end
        end
      end

      private

      def heddle_listening(conn, channels)
        channels.each { |channel| log_connection_execute(conn, "LISTEN #{literal(Sequel.identifier(channel))}") }
        yield
      ensure
        unless conn.closed?
          log_connection_execute(conn, "UNLISTEN *")
          nil while conn.wait_for_notification(0)
        end
      end

      def heddle_listen_on(conn, opts, block)
        catch(:stop) do
          loop do
            heddle_notified(conn, opts, block)
            heddle_callers { opts[:loop].call(conn) } if opts[:loop].respond_to?(:call)
          end
        end
        nil
      end

      def heddle_notified(conn, opts, block)
        timeout = opts[:timeout]
        timeout = timeout.call if timeout.respond_to?(:call)
        notification = conn.wait_for_notification(timeout)
        return unless notification

        heddle_callers { block&.call(notification.channel, notification.process_id, notification.payload) }
        notification.channel
      end
    end
    private_constant :PostgreSQLListen
  end
end
