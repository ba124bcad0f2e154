# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # TLS sessions that a later connection with the same key resumes. A ticket of TLS 1.3 serves once, because whoever
      # sees it twice can tell that both connections have the same client (RFC 8446, C.4).
      class Tickets
        Ticket = Struct.new(:key, :session, :once)
        private_constant :Ticket

        # @param most [Integer] tickets
        def initialize(most)
          @most = most
          @lock = Mutex.new
          @tickets = Places.new
        end

        # @param key [Key]
        # @return [OpenSSL::SSL::Session, nil]
        def take(key)
          @lock.synchronize do
            ticket = @tickets.find(key) or return
            @tickets.delete(ticket) if ticket.once
            ticket.session
          end
        rescue ThreadError # a signal's handler may not lock
          nil
        end

        # @param key [Key]
        # @param session [OpenSSL::SSL::Session]
        # @param once [Boolean] whether it serves once
        def give(key, session, once)
          @lock.synchronize do
            # A session of TLS 1.2 replaces the one before.
            old = @tickets.find(key) unless once
            @tickets.delete(old) if old
            @tickets.add(Ticket.new(key, session, once))
            @tickets.delete(@tickets.first) if @tickets.size > @most
          end
        rescue ThreadError
          nil
        end

        def clear
          @lock.synchronize { @tickets.clear }
        end
      end
      private_constant :Tickets
    end
  end
end
