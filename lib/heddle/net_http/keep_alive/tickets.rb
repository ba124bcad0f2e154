# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # TLS sessions that a later connection with the same key resumes. A ticket of TLS 1.3 serves once: an
      # observer who sees it twice knows that both connections have the same client (RFC 8446, C.4).
      class Tickets
        class Ticket
          attr_reader :session, :once

          def initialize(key, session, once)
            @key = key
            @session = session
            @once = once
          end
        end
        private_constant :Ticket

        # @param most [Integer] tickets
        def initialize(most)
          @most = most
          @tickets = KeyedTable.new
        end

        # @param key [Key]
        # @return [OpenSSL::SSL::Session, nil]
        def take(key)
          while (ticket = @tickets.find(key))
            # Another thread may have just taken it.
            return ticket.session if !ticket.once || @tickets.delete(ticket)
          end
        end

        # @param key [Key]
        # @param session [OpenSSL::SSL::Session]
        # @param once [Boolean] whether it serves once
        def give(key, session, once)
          # A session of TLS 1.2 replaces the one before.
          old = @tickets.find(key) unless once
          @tickets.delete(old) if old
          @tickets.add(Ticket.new(key, session, once), @most, @most)
        end

        # @return [Tickets] an empty one with the same limit
        def successor = Tickets.new(@most)

        def clear = @tickets.clear
      end
      private_constant :Tickets
    end
  end
end
