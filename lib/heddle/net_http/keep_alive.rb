# frozen_string_literal: true

require_relative "keep_alive/connection"
require_relative "keep_alive/exchange"
require_relative "keep_alive/key"
require_relative "keep_alive/methods"
require_relative "keep_alive/places"
require_relative "keep_alive/plainness"
require_relative "keep_alive/store"
require_relative "keep_alive/tickets"
require_relative "keep_alive/trust"
require_relative "keep_alive/verification"

module Heddle
  module NetHTTP
    # Keeps the connections of sessions that have ended, for later sessions: what {Heddle::NetHTTP.keep_alive} switches
    # on. Runs in the main Ractor only, because `Library.keeps?` is false elsewhere.
    #
    # @api private
    module KeepAlive
      # Versions of TLS whose sessions serve once.
      ONCE = ["TLSv1.3"].freeze
      # No process has more connections.
      MOST = 1 << 30
      private_constant :ONCE, :MOST

      @plainness = Plainness.new

      class << self
        # @return [Float] seconds that a connection may rest
        attr_reader :idle

        def start(idle, per_host, total, key)
          check(idle, per_host, total)
          stop
          @idle = idle.to_f
          @chooses = key
          use(Store.new(per_host: [per_host, MOST].min, total: [total, MOST].min))
          @tickets = Tickets.new([total, MOST].min)
          @forks = Heddle.forks
          watch_process
          watch_openssl
          @started = true
          Connecting.spaces.each_key { |library| add_to(library) }
          Library.keeping = @idle
        end

        # Programs that do not switch this on find no method of ours on Net::HTTP.
        def add_to(library)
          library.include(Additions) if @started
        end

        def stop
          Library.keeping = false
          clear
        end

        def clear
          kept = store or return
          @tickets.clear
          kept.clear
        end

        def stats
          {**Library.counts, idle: @store ? @store.size : 0}
        end

        # @param http [Net::HTTP] that is about to connect
        # @return [Key, nil] nil: its connection is not kept
        def key(http)
          return if Library.choice(http) == false || !@plainness.plain?(http, Library.library_of(http))
          return if http.use_ssl? && !@verification&.shipped?

          chosen = @chooses ? @chooses.call(http) : true
          Key.of(http, chosen) if chosen
        end

        # Gives a session a kept connection, unless there is none. Only at the start of a session: a session that
        # connects again has just found its connection unusable, and its request may be one that must not fail twice.
        #
        # @param key [Key]
        # @return [true, nil] nil: there is none
        def take(http, key)
          return unless Library.reuses?(http)

          connection = find(http, key) or return
          hand_over(http, connection)
          taken = true
        ensure
          connection.close if connection && !taken
        end

        # Call this before a connect: offers a TLS session to resume. An object's own TLS session from before its start
        # may belong to other settings: tickets come at any time, to the object that made the connection.
        #
        # @return [OpenSSL::SSL::Session, nil]
        def offer_session(http, key)
          return unless http.use_ssl?

          known = http.instance_variable_get(:@ssl_session) if http.started?
          known || http.instance_variable_set(:@ssl_session, @tickets.take(key))
        end

        # A session has connected.
        #
        # @param offered [OpenSSL::SSL::Session, nil] see {offer_session}
        def opened(http, key, offered)
          socket = http.instance_variable_get(:@socket)
          io = socket.io
          Library.set_connection(socket, Connection.new(key.lasting, io, Clock.now, Library.transporting?(http)))
          count(:opened)
          return unless http.use_ssl?

          count(:resumed) if io.session_reused?
          used = offered && http.instance_variable_get(:@ssl_session).equal?(offered)
          http.instance_variable_set(:@ssl_session, nil) if used && ONCE.include?(io.ssl_version)
        end

        # @return [Connection, nil]
        def connection_of(http)
          socket = http.instance_variable_get(:@socket)
          socket && Library.connection(socket)
        end

        # The session ends, and not as most do, see Library.leave: keeps its connection, or leaves it to be closed.
        def finish(http, socket)
          connection = Library.connection(socket) or return
          keep_session(http, connection) if http.use_ssl?
          store.give(connection) if release(http, connection, socket)
        end

        def note_implied_close(request)
          header = request.instance_variable_get(:@header)
          fields = header["connection"]
          return if request.frozen?
          return if fields&.equal?(Library.implied(request))

          Library.set_implied(request, fields ? nil : header["connection"] = ["close"])
        end

        def found_stale = count(:stale)

        # Connections have been closed because of a limit, or because they were idle for too long.
        def evicted(number = 1) = Library.count(:evicted, number)

        # Call this when a session connects again. If the kept connection that it began with has brought no answer yet,
        # the session gets all retries of a session that begins with the new connection.
        def lost(socket)
          return unless Library.connection(socket)&.awaiting

          found_stale
          Library.answered(socket)
        end

        # A method of the library or of a socket has changed.
        def forget_methods = @plainness.forget

        private

        def check(idle, per_host, total)
          unless idle.is_a?(Numeric) && idle.real? && idle.positive? && idle.to_f.finite?
            raise ArgumentError, "idle must be a number of seconds above 0, not #{idle.inspect}"
          end

          {per_host: per_host, total: total}.each do |name, count|
            next if count.is_a?(Integer) && count.positive?

            raise ArgumentError, "#{name} must be a number of connections, at least 1, not #{count.inspect}"
          end
        end

        def release(http, connection, socket)
          released = Library.release(http, connection, socket, closed_io)
          return released unless released.nil?

          connection.quiet? && Library.detach(connection, socket, closed_io)
        rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
          false
        end

        def store
          abandon if @forks != Heddle.forks # C code may fork
          @store
        end

        def find(http, key)
          places = store.places
          while (connection = places.take(key)) # in C: a strike finds no connection between the store and here
            if Library.fresh?(connection)
              count(:reused)
              return connection
            end
            unless connection.allowed?(http.open_timeout) # others may use it; a new connect asks for each address
              refused, connection = connection, nil # from here on it may be anybody's
              store.give(refused)
              return
            end
            case judge(connection, http)
            when :fresh
              count(:reused)
              return connection
            when :jumped then clear
            end
            connection.close
          end
        rescue Exception # standard:disable Lint/RescueException
          connection&.close
          raise
        end

        def judge(connection, http)
          now = Clock.now
          if connection.jumped?(now)
            evicted
            :jumped
          elsif connection.expires_at <= now
            evicted
            :old
          elsif !connection.quiet? || !connection.at_home?(now, @idle, http.open_timeout)
            count(:stale)
            :stale
          else
            :fresh
          end
        end

        def hand_over(http, connection)
          library = Library.library_of(http)
          output = http.instance_variable_get(:@debug_output)
          socket = Connecting.buffered_io(library, Connecting.spaces[library]).new(connection.io,
            read_timeout: http.read_timeout, write_timeout: http.write_timeout,
            continue_timeout: http.continue_timeout, debug_output: output)
          output << "using a kept connection to #{connection.host}:#{connection.key.port}\n" if output
          http.instance_variable_set(:@ssl_context, connection.io.context) if http.use_ssl?
          Library.attach(http, socket, connection)
        end

        # The object's TLS session may be of another connection, which had other settings.
        def keep_session(http, connection)
          return unless (session = http.instance_variable_get(:@ssl_session))

          http.instance_variable_set(:@ssl_session, nil)
          return unless connection.io.session == session

          @tickets.give(connection.key, session, ONCE.include?(connection.io.ssl_version))
        rescue IOError, OpenSSL::SSL::SSLError
          nil
        end

        def count(what) = Library.count(what, 1)

        # The C code begins most sessions, and ends them, without calling a method here.
        def use(store)
          store.use(closed_io, !!@chooses)
          @store = store
        end

        def closed_io = (@closed_io ||= IO.pipe.each(&:close).first)

        def abandon
          @forks = Heddle.forks
          old = @store or return
          use(old.successor)
          @tickets = @tickets.successor
          old.abandon
        end

        def watch_openssl
          return if @verification || !defined?(OpenSSL::SSL)

          Trust.watch
          @verification = Verification.new
        end

        def watch_process
          return if @watched

          @watched = true
          at_exit { clear }
          AfterFork.register { abandon }
        end
      end
    end
    private_constant :KeepAlive
  end
end
