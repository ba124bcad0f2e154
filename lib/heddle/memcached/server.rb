# frozen_string_literal: true

module Heddle
  class Memcached
    # The connections to one server, and whether it is any use to ask it: a circuit breaker. After a few failures in a row it
    # is left alone for a while; then one operation tries it again, within its own time.
    #
    # @api private
    class Server
      OLDEST = [1, 6, 18].freeze
      # Shortages of this process or machine, which say nothing of the server.
      OURS = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::EADDRNOTAVAIL].freeze
      private_constant :OURS

      # @return [Address]
      attr_reader :address
      # @return [String]
      attr_reader :name
      # @return [Exception, nil] what it failed with last
      attr_reader :error

      # @param address [Address]
      # @param pool [Integer] connections at most
      # @param pool_timeout [Numeric, nil] seconds that waiting for one of them may take
      # @param connect_timeout [Numeric, nil] seconds
      # @param tls [Boolean, Hash, OpenSSL::SSL::SSLContext]
      # @param failures [Integer] in a row until it counts as down
      # @param retry_after [Numeric] seconds that it is left alone then, at first
      # @param max_retry_after [Numeric] … doubled each time, up to this
      def initialize(address, pool:, pool_timeout:, connect_timeout:, tls:, username:, password:, keepalive:, failures:, retry_after:,
        max_retry_after:)
        @address = address
        @name = address.name
        @tls = tls
        @user = address.user || username
        @password = address.password || password
        @keepalive = keepalive
        @failures_allowed = failures
        @retry_after = retry_after
        @max_retry_after = max_retry_after
        @failures = 0
        self.limit = pool
        self.turn_limit = pool_timeout
        self.connect_limit = connect_timeout
      end

      # The server's own doing: it refused, reset or closed a connection, sent garbage, or did not answer within the
      # operation's own time. What a caller did to its operation does not get here (memcached_callers_doing).
      def failed(error)
        return if OURS.any? { |shortage| shortage === error }

        @failures += 1
        @error = error
        # Other connections may be as dead; what is only slow is left alone.
        drop(forget) unless error.is_a?(Timeout::Error)
        leave_alone if @failures >= @failures_allowed
        self.troubled = true
      end

      def recovered
        self.troubled = false
        @failures = 0
        @error = @down_until = @pause = @tried = nil
      end

      # Whether an operation may use it. Once its time to be left alone is over, says yes to one, and to another only when
      # that time has passed again without an answer, or when the caller of the first has given it up.
      def usable?
        down_until = @down_until # others set it meanwhile
        return true unless down_until

        time = now
        return false unless time >= down_until || abandoned?

        @down_until = time + (@pause || @retry_after)
        @tried = true
      end

      # @param seconds [Numeric, nil]
      # @return [Stream] for {#greet}
      def connect(seconds)
        reaching { Heddle.deadline(seconds) { open_stream } }
      end

      # Makes a connection ready for requests.
      #
      # @param seconds [Numeric, nil]
      def greet(stream, seconds)
        reaching do
          Heddle.deadline(seconds) do
            authenticate(stream) if @user
            check_version(stream)
          end
        end
      end

      # Closes every connection: those in use when they are given back.
      def close
        drop(shut)
      end

      def disconnect
        drop(forget)
      end

      def inspect
        "#<#{self.class} #{name}#{" down" if @down_until}>"
      end

      private

      # Longer only when it was tried again meanwhile: operations that were under way together fail together.
      def leave_alone
        if @pause.nil?
          @pause = @retry_after
        elsif @tried
          @pause = [@pause * 2, @max_retry_after].min
        else
          return
        end
        @tried = nil
        @down_until = now + @pause
      end

      def reaching
        yield
      rescue IOError, SystemCallError, SocketError, Timeout::Error => error
        error.extend(Unreachable) unless error.frozen?
        raise
      end

      def open_stream
        return Stream.unix(@address.path) if @address.path

        Stream.connect(@address.host, @address.port, tls: @tls, keepalive: @keepalive)
      end

      # The ASCII protocol's, of a server that was started with -Y.
      def authenticate(stream)
        words = "#{@user} #{@password}"
        answer = stream.exchange { stream.write("set auth 0 0 #{words.bytesize}\r\n#{words}\r\n") && stream.gets(limit: 1024) }
        return if answer == "STORED\r\n"

        raise AuthenticationFailed, "#{name} does not accept the password of #{@user.inspect}: #{answer.inspect}"
      end

      def check_version(stream)
        answer = stream.exchange { stream.write("version\r\n") && stream.gets(limit: 1024) }
        raise UnexpectedEnd, "#{name} closed the connection at once" if answer.nil?
        raise AuthenticationFailed, "#{name} wants a password: pass username: and password:" if answer.start_with?("CLIENT_ERROR unauthenticated")
        raise ProtocolError, "#{name} is no memcached: it says #{answer.inspect}" unless answer.match?(/\AVERSION [^\r\n]*\r\n\z/)

        version = answer[/\AVERSION (\d+\.\d+\.\d+)/, 1]
        return if version.nil? || (version.split(".").map(&:to_i) <=> OLDEST) >= 0

        raise UnsupportedServer, "#{name} is memcached #{version}: #{OLDEST.join(".")} or newer is needed"
      end

      def drop(streams)
        streams.each(&:close)
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
