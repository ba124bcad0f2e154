# frozen_string_literal: true

module Heddle
  class Memcached
    # The connections to one server, and whether it is any use to ask it: a circuit breaker. After a few failures in a row it
    # is left alone for a while; then one operation tries it again, within its own time.
    #
    # @api private
    class Server
      OLDEST = [1, 6, 18].freeze

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
      # @param retry_most [Numeric] … doubled each time, up to this
      def initialize(address, pool:, pool_timeout:, connect_timeout:, tls:, username:, password:, keepalive:, failures:, retry_after:,
        retry_most:)
        @address = address
        @name = address.name
        @connect_timeout = connect_timeout
        @tls = tls
        @user = address.user || username
        @password = address.password || password
        @keepalive = keepalive
        @failures_allowed = failures
        @retry_after = retry_after
        @retry_most = retry_most
        @failures = 0
        self.limit = pool
        self.turn_limit = pool_timeout
      end

      # What an operation failed with.
      def failed(error)
        @failures += 1
        @error = error
        # Other connections may be as dead; what is only slow is left alone.
        drop(forget) unless error.is_a?(Timeout::Error)
        if @failures >= @failures_allowed
          @pause = @pause ? [@pause * 2, @retry_most].min : @retry_after
          @down_until = now + @pause
        end
        self.troubled = true
      end

      def recovered
        self.troubled = false
        @failures = 0
        @error = @down_until = @pause = nil
      end

      # Whether an operation may use it. Once its time to be left alone is over, says yes to one, and to another only when
      # that time has passed again without an answer.
      def usable?
        down_until = @down_until # others set it meanwhile
        return true unless down_until

        time = now
        return false if time < down_until

        @down_until = time + (@pause || @retry_after)
        true
      end

      # A connection that is ready for requests.
      #
      # @param seconds [Numeric, nil] for all of it
      # @return [Stream]
      def connect(seconds)
        Heddle.deadline([seconds, @connect_timeout].compact.min) do
          stream = open_stream
          complete = false
          begin
            authenticate(stream) if @user
            check_version(stream)
            complete = true
            stream
          ensure
            stream.poison unless complete
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
