# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # Connects to the first server that lets us in and is of the kind that the settings ask for. All servers together
      # have one limit of time: each may use an equal share of what is left, so that a silent server does not keep the
      # others from being tried.
      #
      # @api private
      class Connecting
        # A server that lets us in, and is of another kind than was asked for.
        OtherKind = Class.new(LoginFailed)
        # TLS of the first attempt and of the second: true, false, or nil for TLS where the server has it.
        ENCRYPTED = {disable: [false], allow: [false, nil], prefer: [nil, false], require: [true], "verify-ca": [true],
                     "verify-full": [true]}.freeze
        # The server starts, ends or is full: another one may have room.
        ELSEWHERE = %w[57P01 57P02 57P03 53300].freeze
        KINDS = {"read-write": "writes", "read-only": "reads alone", primary: "is a primary", standby: "is a standby"}
          .freeze
        private_constant :OtherKind, :ENCRYPTED, :ELSEWHERE, :KINDS

        # @param settings [Hash{Symbol => Object}] see {Settings.of}
        def initialize(settings)
          @settings = settings
          @failures = {}.compare_by_identity
        end

        # @yieldparam protocol [Protocol]
        # @yieldparam login [Login]
        # @yieldparam server [Server]
        # @raise [LoginFailed, ConnectTimeout, ConnectionLost, SystemCallError, SocketError, OpenSSL::SSL::SSLError] of
        #   the last server; the message has what each one said
        def perform(&block)
          limit = @settings[:connect_timeout]
          @until = Clock.now + limit if limit
          attempts = attempts()
          attempts.each_with_index do |(server, kind), index|
            return try(server, kind, attempts.size - index, &block)
          rescue ProtocolError, LoginFailed, ConnectTimeout, ConnectionLost, SystemCallError, SocketError,
            OpenSSL::SSL::SSLError => error
            @failures[server] = error
            break if error.instance_of?(LoginFailed) && !ELSEWHERE.include?(state(error))
          end
          fail_with(@failures.values)
        end

        private

        # Servers, each with the kind that it has to be of.
        def attempts
          kind = @settings[:target_session_attrs] || :any
          servers = @settings[:servers]
          servers = servers.shuffle if @settings[:load_balance_hosts] == :random
          servers = servers.flat_map { |server| addresses(server) } unless kind == :any
          kinds = (kind == :"prefer-standby") ? %i[standby any] : [kind]
          kinds.flat_map { |each| servers.map { |server| [server, each] } }
        end

        # The addresses of one name may be servers of different kinds.
        def addresses(server)
          limited(server, @until && @until - Clock.now) { server.each_address }
        rescue SocketError
          [server] # its connect will say so
        end

        def try(server, kind, left, &block)
          limited(server, @until && (@until - Clock.now) / left) { reach(server, kind, &block) }
        end

        def limited(server, seconds)
          @step = "the look-up of its name"
          Heddle.deadline(seconds && [seconds, 0.001].max) { yield }
        rescue DeadlineExceeded => error
          remaining = Heddle.remaining
          raise if remaining && remaining <= 0 # of a deadline around us

          limit = "connect_timeout: #{@settings[:connect_timeout]} s"
          limit = "its share of #{limit}" if seconds < @settings[:connect_timeout] * 0.9
          raise ConnectTimeout, "no connection to #{server} in #{seconds.round(3)} s (#{limit}): " \
            "it waited for #{@step}", cause: error
        end

        # With TLS or without, as sslmode: has it.
        def reach(server, kind, &block)
          ways = server.socket ? [false] : ENCRYPTED.fetch(@settings[:sslmode])
          ways.each_with_index do |encrypted, index|
            return attempt(server, encrypted, kind, &block)
          rescue LoginFailed, OpenSSL::SSL::SSLError => error
            raise if index == ways.size - 1 || !@login&.refused?(error)
          end
        end

        # With the newest protocol, and with the old one where a server hangs up at the new one.
        def attempt(server, encrypted, kind, &block)
          log_in(server, encrypted, kind, server.old, &block)
        rescue LoginFailed, ConnectionLost => error
          raise unless @login&.too_new?(error)

          log_in(server, encrypted, kind, true) do |*connected|
            server.old = true
            block.call(*connected)
          end
        end

        def log_in(server, encrypted, kind, old)
          @step, @login = "the connect itself", nil
          protocol = Protocol.new
          stream = server.open
          protocol.open(stream, @settings[:time_zone] == :local)
          Types.prepare(protocol)
          @login = Login.new(protocol, server, @settings, encrypted, old: old)
          @login.perform
          check(protocol, server, kind)
          yield protocol, @login, server
          complete = true
        rescue IOError, SystemCallError, SocketError, OpenSSL::SSL::SSLError => error
          raise if error.is_a?(Error)
          if stream.nil? || error.is_a?(OpenSSL::SSL::SSLError)
            raise Error.mark(error, "no connection to #{server}: #{error.message}#{@login&.hint(error)}")
          end

          raise ConnectionLost,
            "the connection to #{server} was lost while logging in (#{error.message}#{@login&.hint(error)})"
        ensure
          @step = @login.step || @step if @login
          stream&.close unless complete
        end

        def state(error) = error.cause.is_a?(ServerError) ? error.cause.sql_state : nil

        # ---- target_session_attrs

        def check(protocol, server, kind)
          return if kind == :any || of_kind?(protocol, kind)

          raise OtherKind, "#{server} is not of the kind that target_session_attrs: " \
            "#{@settings[:target_session_attrs]} asks for: no server that #{KINDS.fetch(kind)}"
        end

        # From 14 on a server says all of this while logging in.
        def of_kind?(protocol, kind)
          case kind
          when :primary then !standby?(protocol)
          when :standby then standby?(protocol)
          when :"read-write" then !read_only?(protocol)
          when :"read-only" then read_only?(protocol)
          end
        end

        def standby?(protocol)
          said = protocol.settings["in_hot_standby"]
          said ? said == "on" : ask(protocol, "select pg_catalog.pg_is_in_recovery()")
        end

        def read_only?(protocol)
          said = protocol.settings.values_at("default_transaction_read_only", "in_hot_standby")
          said.include?(nil) ? ask(protocol, "show transaction_read_only") : said.include?("on")
        end

        def ask(protocol, sql)
          result = protocol.run_text(sql)
          if result.is_a?(Exception)
            raise LoginFailed, "#{protocol.stream.peer} does not say what it is: #{result.message}", cause: result
          end

          [true, "on", "t"].include?(result.rows.dig(0, 0))
        end

        # ---- the end

        def fail_with(errors)
          last = errors.last
          return raise last if errors.one? && !last.is_a?(OtherKind)

          said = errors.map { |error| error.message.gsub("\n", "\n    ") }
          message = "none of #{errors.size} servers was reached:\n  #{said.join("\n  ")}" if errors.size > 1
          raise LoginFailed, message || last.message, cause: last.cause if last.is_a?(OtherKind)

          raise Error.mark(last, message)
        end
      end
      private_constant :Connecting
    end
  end
end
