# frozen_string_literal: true

module Heddle
  class Stream
    # Further methods that clients expect of a TCPSocket, on top of the methods in C.
    module AsIO
      include Enumerable

      # @return [String] see {#gets}
      # @raise [EOFError] at the end
      def readline(...)
        gets(...) || raise(EOFError, "end of file reached")
      end

      # @yieldparam line [String]
      def each_line(*arguments, **options)
        return enum_for(:each_line, *arguments, **options) unless block_given?
        raise ArgumentError, "invalid limit: 0 for each_line" if arguments.last == 0

        while (line = gets(*arguments, **options))
          yield line
        end
        self
      end
      alias_method :each, :each_line

      # @return [Array<String>] all lines to the end
      def readlines(...)
        each_line(...).to_a
      end

      # @return [Integer] the next byte
      # @raise [EOFError] at the end
      def readbyte
        getbyte || raise(EOFError, "end of file reached")
      end

      # @return [String, nil] the next byte as a String
      def getc
        read(1)
      end

      # @return [String] see {#getc}
      # @raise [EOFError] at the end
      def readchar
        getc || raise(EOFError, "end of file reached")
      end

      # @yieldparam byte [Integer]
      # @return [self]
      def each_byte
        return enum_for(:each_byte) unless block_given?

        while (byte = getbyte)
          yield byte
        end
        self
      end

      # @param byte [Integer, String, nil] to be read next
      def ungetbyte(byte)
        unread(byte.is_a?(Integer) ? (byte & 0xff).chr : byte) if byte
      end

      # @param character [Integer, String, nil] to be read next
      def ungetc(character)
        unread(character.is_a?(Integer) ? [character].pack("U") : character) if character
      end

      # @return [nil]
      def print(*objects)
        write(*objects)
        nil
      end

      # @return [nil]
      def puts(*objects)
        return print("\n") if objects.empty?

        objects.flatten.each do |object|
          line = object.to_s
          write(line.end_with?("\n") ? line : "#{line}\n")
        end
        nil
      end

      # @return [nil]
      def printf(format, *arguments)
        write(format % arguments)
        nil
      end

      # @param object [String, Integer] writes the String's first character, or this byte
      # @return [String, Integer] the object
      def putc(object)
        write(object.is_a?(String) ? object[0] : (Integer(object) & 0xff).chr)
        object
      end

      # Like BasicSocket#recv. With flags it reads from the socket itself, past the bytes that the stream holds. At the
      # end it returns nil, before Ruby 3.3 "".
      def recv(length, flags = 0, buffer = nil)
        return to_io.recv(length, flags) unless flags.zero?

        readpartial(length, *buffer)
      rescue EOFError
        (RUBY_VERSION < "3.3") ? "" : nil
      end

      # BasicSocket#send for a String and flags; Object#send for any other arguments.
      def send(*arguments, **options, &block)
        unless arguments.size == 2 && arguments[0].is_a?(String) && arguments[1].is_a?(Integer) && options.empty?
          return super
        end

        arguments[1].zero? ? syswrite(arguments[0]) : to_io.send(*arguments)
      end

      # Like IO#wait with a timeout, for reading only.
      #
      # @param timeout [Numeric, nil] seconds
      # @return [self, nil] nil when the timeout ends first
      def wait(timeout = nil)
        wait_readable(timeout)
      end

      # Closes the reading side only: written bytes are still sent.
      def close_read
        to_io.close_read
      end

      # @return [Integer]
      def fileno
        to_io.fileno
      end
      alias_method :to_i, :fileno

      # Sends the buffered bytes. Whether the peer gets them is not known.
      #
      # @return [0]
      def fsync
        flush
        0
      end

      # The stream's bytes are always binary.
      def binmode
        self
      end

      # @return [true]
      def binmode?
        true
      end

      # @return [Encoding]
      def external_encoding
        Encoding::BINARY
      end

      # @return [nil]
      def internal_encoding
        nil
      end

      # Without effect: see {#binmode}.
      #
      # @return [self]
      def set_encoding(*, **)
        self
      end

      # @return [false]
      def isatty
        false
      end
      alias_method :tty?, :isatty

      # @!group Methods of the socket
      # @!method setsockopt(level, name, value)
      #   The socket's own.
      #   @return [0]
      # @!method getsockopt(level, name)
      #   The socket's own.
      #   @return [Socket::Option]
      # @!method addr(reverse_lookup = nil)
      #   The socket's own.
      #   @return [Array]
      # @!method peeraddr(reverse_lookup = nil)
      #   The socket's own.
      #   @return [Array]
      # @!method local_address
      #   The socket's own.
      #   @return [Addrinfo]
      # @!method remote_address
      #   The socket's own.
      #   @return [Addrinfo]
      # @!method getsockname
      #   The socket's own.
      #   @return [String]
      # @!method getpeername
      #   The socket's own.
      #   @return [String]
      # @!method shutdown(how = Socket::SHUT_RDWR)
      #   The socket's own.
      #   @return [0]
      # @!method fcntl(command, argument = 0)
      #   The socket's own.
      #   @return [Integer]
      # @!method ioctl(command, argument = 0)
      #   The socket's own.
      #   @return [Integer]
      # @!method close_on_exec=(close)
      #   The socket's own.
      #   @return [Boolean]
      # @!method close_on_exec?
      #   The socket's own.
      #   @return [Boolean]
      # @!method autoclose?
      #   The socket's own.
      #   @return [Boolean]
      # @!method do_not_reverse_lookup
      #   The socket's own.
      #   @return [Boolean]
      # @!method do_not_reverse_lookup=(off)
      #   The socket's own.
      #   @return [Boolean]
      %i[setsockopt getsockopt addr peeraddr local_address remote_address getsockname getpeername shutdown fcntl ioctl
        close_on_exec= close_on_exec? autoclose? do_not_reverse_lookup do_not_reverse_lookup=].each do |name|
        define_method(name) { |*arguments, &block| to_io.public_send(name, *arguments, &block) }
      end
    end
    private_constant :AsIO
  end
end
