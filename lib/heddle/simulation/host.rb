# frozen_string_literal: true

require_relative "http"

module Heddle
  class Simulation
    # A computer of the world: what it serves, by port.
    class Host
      # @return [String]
      attr_reader :name
      # @return [Array<String>]
      attr_reader :addresses
      # @return [Link] its link to the code under test
      attr_accessor :link
      # @return [Boolean] whether nothing passes between it and the code under test
      attr_accessor :parted

      # @api private
      def initialize(name, addresses)
        @name, @addresses = name, addresses
        @link = Link.new
        @parted = false
        @services, @datagrams = {}, {}
      end

      # Serves each connection in a task of its own. The socket is closed after the block.
      #
      # @param port [Integer]
      # @yieldparam socket [TCPSocket]
      def tcp(port, &block)
        Check.server(block)
        @services[Check.port(port)] = block
      end

      # Receives each datagram in a task of its own.
      #
      # @param port [Integer]
      # @yieldparam datagram [String]
      # @yieldparam from [Addrinfo]
      # @yieldreturn [String, nil] the answer
      def udp(port, &block)
        Check.server(block)
        @datagrams[Check.port(port)] = block
      end

      # Serves HTTP/1.1.
      #
      # @param port [Integer]
      # @yieldparam request [HTTP::Request]
      # @yieldreturn [String, Integer, Array(Integer, Hash, String)] the body; the status; or status, fields and body
      def http(port, &block)
        Check.server(block)
        tcp(port) { |socket| HTTP.new(socket).serve(&block) }
      end

      # Nothing answers at this port any more: connects are refused. Connections that are open stay.
      #
      # @param port [Integer]
      def close(port)
        @services.delete(port)
        @datagrams.delete(port)
      end

      # @api private
      # @param place [Integer, String] a port or a path
      def service(place) = @services[place]

      # @api private
      def datagrams(port) = @datagrams[port]

      # @api private
      def remove_datagrams(port)
        @datagrams.delete(port)
      end

      # @api private
      # @param service [Proc, Listener]
      def serve(place, service)
        @services[place] = service
      end

      # @api private
      def serves?(place)
        service = @services[place]
        service && !(service.is_a?(Listener) && service.closed?)
      end

      # @api private
      def full?(place)
        service = @services[place]
        service.is_a?(Listener) && service.full? && !service.closed?
      end
    end
  end
end
