# frozen_string_literal: true

require_relative "pipe"

module Heddle
  class Simulation
    # A connection of two sides.
    class Connection
      # One side. Its own socket is one end of a pair, and the world has the other end, `far`. The socket is known by
      # its inode, since its number may be another file's later.
      Side = Struct.new(:far, :descriptor, :inode, :local, :remote, :error, :connected) do
        # @return [Integer] the errno of another connect
        def state
          return error if error

          (connected ? Errno::EISCONN : Errno::EINPROGRESS)::Errno
        end

        # @return [Boolean] whether the own socket is closed, if nothing was written to it
        def closed?
          far.closed? || far.read_nonblock(1, exception: false).nil?
        rescue Errno::ECONNRESET # it had something to read
          true
        end

        # @return [Hash] what was set of IP and TCP, by level and name
        def options = @options ||= {}

        # @return [Socket::Option] SO_ERROR
        def error_option = Socket::Option.int(:INET, :SOCKET, :ERROR, error || 0)
      end

      # @return [World]
      attr_reader :world
      # @return [Host]
      attr_reader :host

      # @param near [Side] of the code under test
      # @param away [Side] of the host
      def initialize(world, host, name, near, away)
        @world, @host, @name = world, host, name
        @sides = [near, away]
        @running = 2
      end

      # Starts to move bytes.
      def open
        near, away = @sides
        pipe("#{@name} >", near, away)
        pipe("#{@name} <", away, near)
      end

      # Ends the connection for both sides.
      def reset_both
        @sides.each { |side| @world.network.reset(side) }
      end

      private

      def pipe(name, from, to)
        pipe = Pipe.new(self, name, from, to)
        @world.start do
          pipe.run
        rescue IOError # reset meanwhile
          nil
        ensure
          close if (@running -= 1).zero?
        end
      end

      def close
        @sides.each { |side| @world.network.remove(side) }
      end
    end
    private_constant :Connection
  end
end
