# frozen_string_literal: true

module Heddle
  class Memcached
    # The connections to one server, with a circuit breaker. After a few failures in a row no operation uses the server
    # for a while; then one operation tries it again, within its own timeout.
    #
    # @api private
    class Server
      OLDEST = [1, 6, 18].freeze
      # Shortages of this process or machine, and the refusal of a filter, which may be the rule of this caller alone
      # ({Heddle.connect_filter}): the server is not to blame, and was not asked.
      OURS = [ConnectRefused, Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS, Errno::EADDRNOTAVAIL].freeze
      private_constant :OURS

      # @return [Address]
      attr_reader :address
      # @return [String]
      attr_reader :name
      # @return [Exception, nil] the server's last error
      attr_reader :error

      # @param address [Address]
      # @param pool [Integer] the most connections
      # @param pool_timeout [Numeric, nil] seconds to wait for a connection
      # @param connect_timeout [Numeric, nil] seconds
      # @param tls [Boolean, Hash, OpenSSL::SSL::SSLContext]
      # @param failures [Integer] failures in a row until the server counts as down
      # @param retry_after [Numeric] seconds until a server that is down is tried again, at first
      # @param max_retry_after [Numeric] the most seconds: +retry_after+ doubles at each failure
      def initialize(address, pool:, pool_timeout:, connect_timeout:, tls:, username:, password:,
        keepalive:, failures:, retry_after:, max_retry_after:)
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

      # Notes a failure of the server: it refused, reset or closed a connection, sent garbage, or did not answer within
      # the operation's own timeout. Interruptions by the caller are filtered out before (memcached_failed_by_caller).
      def failed(error)
        return if OURS.any? { |kind| kind === error }

        @failures += 1
        @error = error
        # Other connections may be dead, too. A server that is only slow keeps its connections.
        drop(take_idle) unless error.is_a?(Timeout::Error)
        open_breaker if @failures >= @failures_allowed
        self.troubled = true
      end

      def recovered
        self.troubled = false
        @failures = 0
        @error = @down_until = @pause = @tried = nil
      end

      # Whether an operation may use the server. After the pause of a server that is down, one operation may. Another
      # may only after a second pause without an answer, or when the caller of the first operation gave up.
      def usable?
        down_until = @down_until # others set it meanwhile
        return true unless down_until

        time = Clock.now
        return false unless time >= down_until || abandoned?

        @down_until = time + (@pause || @retry_after)
        @tried = true
      end

      # @param seconds [Numeric, nil]
      # @return [Stream] for {#greet}
      def connect(seconds)
        reaching { within(seconds) { open_stream } }
      end

      # Makes a connection ready for requests.
      #
      # @param seconds [Numeric, nil]
      def greet(stream, seconds)
        reaching do
          within(seconds) do
            authenticate(stream) if @user
            check_version(stream)
          end
        end
      end

      # Closes every connection; those in use are closed when they are returned.
      def close
        drop(shut)
      end

      def disconnect
        drop(take_idle)
      end

      def inspect
        "#<#{self.class} #{name}#{" down" if @down_until}>"
      end

      private

      # Prolongs the pause only if the server was tried again meanwhile: operations that run together fail together.
      def open_breaker
        if @pause.nil?
          @pause = @retry_after
        elsif @tried
          @pause = [@pause * 2, @max_retry_after].min
        else
          return
        end
        @tried = nil
        @down_until = Clock.now + @pause
      end

      def reaching
        yield
      rescue Failure => error
        error.extend(Unreachable) unless error.frozen?
        raise
      end

      # The limit is what is left of the client's own.
      def within(seconds, &block)
        Heddle.deadline(seconds, &block)
      rescue DeadlineExceeded
        raise if Heddle.remaining&.zero? # a deadline around the operation

        raise DeadlineExceeded, format("memcached %s did not answer a new connection within the client's timeout: " \
          "%.3g s were left of it", name, seconds)
      end

      def open_stream
        return Stream.unix(@address.path) if @address.path

        Stream.connect(@address.host, @address.port, tls: @tls, keepalive: @keepalive)
      end

      # Authenticates by the ASCII protocol, at a server that was started with -Y.
      def authenticate(stream)
        words = "#{@user} #{@password}"
        answer = stream.exchange do
          stream.write("set auth 0 0 #{words.bytesize}\r\n#{words}\r\n") && stream.gets(limit: 1024)
        end
        return if answer == "STORED\r\n"

        raise AuthenticationFailed, "#{name} does not accept the password of #{@user.inspect}: #{answer.inspect}"
      end

      def check_version(stream)
        answer = stream.exchange { stream.write("version\r\n") && stream.gets(limit: 1024) }
        raise UnexpectedEnd, "#{name} closed the connection at once" if answer.nil?
        if answer.start_with?("CLIENT_ERROR unauthenticated")
          raise AuthenticationFailed, "#{name} requires a password: pass username: and password:"
        end
        unless answer.match?(/\AVERSION [^\r\n]*\r\n\z/)
          raise ProtocolError, "#{name} is not a memcached server: it answered #{answer.inspect}"
        end

        version = answer[/\AVERSION (\d+\.\d+\.\d+)/, 1]
        return if version.nil? || (version.split(".").map(&:to_i) <=> OLDEST) >= 0

        raise UnsupportedServer, "#{name} is memcached #{version}: Heddle needs #{OLDEST.join(".")} or newer"
      end

      def drop(streams)
        streams.each(&:close)
      end
    end
  end
end
