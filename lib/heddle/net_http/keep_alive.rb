# frozen_string_literal: true

require_relative "keep_alive/connection"
require_relative "keep_alive/exchange"
require_relative "keep_alive/key"
require_relative "keep_alive/methods"
require_relative "keep_alive/override_detector"
require_relative "keep_alive/store"
require_relative "keep_alive/tickets"
require_relative "keep_alive/trust"
require_relative "keep_alive/verification"

module Heddle
  module NetHTTP
    # Keeps the connections of sessions that have ended, for later sessions: what {Heddle::NetHTTP.keep_alive} switches
    # on. Runs in the main Ractor only, because `KeepAlive.keeps?` is false elsewhere.
    #
    # @api private
    module KeepAlive
      # Versions of TLS whose sessions serve once.
      ONCE = ["TLSv1.3"].freeze
      # No process has more connections.
      MOST = 1 << 30
      private_constant :ONCE, :MOST, :KeyedTable

      @overrides = OverrideDetector.new

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
          Connect.spaces.each_key { |library| add_to(library) }
          self.keeping = @idle
        end

        # Programs that do not switch this on find no method of ours on Net::HTTP.
        def add_to(library)
          library.include(Additions) if @started
        end

        def stop
          self.keeping = false
          clear
        end

        def clear
          kept = store or return
          @tickets.clear
          kept.clear
        end

        def stats
          {**counts, idle: @store ? @store.size : 0}
        end

        # @return [Hash{String => Integer}]
        def idle_connections = @store ? @store.by_host : {}

        # @param http [Net::HTTP] that is about to connect
        # @return [Key, nil] nil: its connection is not kept
        def key(http)
          return if choice(http) == false || !@overrides.plain?(http, Library.http_of(http, nil))
          return if http.use_ssl? && !@verification&.unpatched?

          chosen = @chooses ? @chooses.call(http) : true
          Key.of(http, chosen) if chosen
        end

        # Call this before a connect: offers a TLS session to resume. Not the object's own TLS session from
        # before its start, which may be of another connection with other settings: a ticket comes at any time, and goes
        # to the object that made the connection.
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
          io = Connection.new(key.lasting, http).io
          count(:opened, 1)
          return unless http.use_ssl?

          count(:resumed, 1) if io.session_reused?
          used = offered && http.instance_variable_get(:@ssl_session).equal?(offered)
          http.instance_variable_set(:@ssl_session, nil) if used && ONCE.include?(io.ssl_version)
        end

        def note_implied_close(request)
          header = request.instance_variable_get(:@header)
          fields = header["connection"]
          return if request.frozen?
          return if fields&.equal?(implied(request))

          set_implied(request, fields ? nil : header["connection"] = ["close"])
        end

        def found_stale = count(:stale, 1)

        # Connections have been closed because of a limit, or because they were idle for too long.
        def evicted(number) = count(:evicted, number)

        # Call this when a session connects again. If the persistent connection that it began with has brought no answer
        # yet, the session gets all retries of a session that begins with the new connection.
        def lost(socket)
          return unless connection(socket)&.unanswered?

          found_stale
          answered(socket)
        end

        # A method of the library or of a socket has changed.
        def clear_overrides = @overrides.clear

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

        def store
          discard if @forks != Heddle.forks # C code may fork
          @store
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

        # The C code begins sessions with its connections, and ends them.
        def use(store)
          store.use(closed_io, !!@chooses)
          @store = store
        end

        def closed_io = (@closed_io ||= IO.pipe.each(&:close).first)

        # In a child of fork: its connections are the parent's.
        def discard
          @forks = Heddle.forks
          old = @store or return
          use(old.successor)
          @tickets = @tickets.successor
          old.discard
        end

        def watch_openssl
          return if @verification || !Object.const_defined?("OpenSSL::SSL")

          Trust.watch
          @verification = Verification.new
        end

        def watch_process
          return if @watched

          @watched = true
          at_exit { clear }
          AfterFork.register { discard }
        end
      end
    end
    private_constant :KeepAlive
  end
end
