# frozen_string_literal: true

require_relative "../heddle"
require_relative "core/required_gem"
Heddle::RequiredGem.load("mysql2", "heddle/mysql2", "mysql2")
require_relative "offload"

module Heddle
  # Makes Mysql2::Client wait on a thread, so that neither a query nor a connect stops the loop, and both keep
  # deadlines.
  #
  #   require "heddle/mysql2"
  #
  # libmariadb reads a reply in a loop of its own: between the first byte and the last, neither a scheduler nor an
  # exception reaches it. So under a scheduler or a {Heddle.deadline}, each call that talks to the server runs on a
  # thread of its own; these threads are like {Heddle.offload}'s, but without a limit. An exception that ends the
  # caller's wait (a deadline, a cancel, an interrupt) shuts down the socket that the call uses. The client is closed
  # then, and stays unusable ({Unusable}): no later call can read the rest of an earlier answer. Elsewhere mysql2 is
  # unchanged.
  #
  # Covers connecting (`Mysql2::Client.new`), `query`, `prepare`, `Statement#execute`, `ping`, `select_db`,
  # `set_server_option`, `async_result`, `store_result`, `next_result` and `abandon_results!`. Not the rows of `stream:
  # true`, which `each` reads from the network: wrap query and `each` in one {Heddle.offload}.
  module MySQL2
    # The client gave up in the middle of a call. `ping` returns false, as for any lost connection.
    class Unusable < ::Mysql2::Error::ConnectionError
      include Error
    end

    # Seconds of a wait that only serves to raise an expired deadline's error: that deadline ends it at once.
    PATIENCE = 1

    # As many threads as calls. The holder of a lock in the database needs a thread to release the lock, while all calls
    # that wait for the lock occupy theirs: any limit could deadlock.
    WORKERS = WorkerThreads.new("heddle mysql2", Float::INFINITY)
    private_constant :PATIENCE, :WORKERS

    class << self
      # Runs the block, which talks to the client's server.
      #
      # @param client [Mysql2::Client]
      # @return [Object] the block's value
      # @raise [Unusable]
      def guard(client)
        refuse(client)
        return yield unless hop?

        watch = SocketWatch.new(client)
        begin
          watch.hold
          work = lambda do
            yield
          ensure
            watch.finish
          end
          value = WORKERS.run(work, grace: Offload::GRACE, interrupt: watch.method(:cut))
          # `ping` returns false for a socket that was shut down at the deadline. A wait raises the deadline's error.
          sleep(PATIENCE) if watch.cut? && Heddle.remaining&.zero?
          value
        ensure
          watch.release
        end
      end

      # @return [Boolean] whether calls must run on a thread here
      def hop? = !!(Fiber.current_scheduler || Heddle.remaining)

      # @return [Boolean]
      def unusable?(client) = client.instance_variable_defined?(:@heddle_given_up)

      private

      def refuse(client)
        return unless unusable?(client)

        raise Unusable,
          "this Mysql2::Client gave up in the middle of a call (#{client.instance_variable_get(:@heddle_given_up)}) " \
          "and its connection was shut down: make a new client"
      end
    end

    # Shuts down a client's socket from outside of the call that uses it. Some calls of mysql2 wait while they hold the
    # GVL, so that no Ruby thread could act at the deadline: {SocketGuard} needs no Ruby thread.
    class SocketWatch
      # Seconds that the guard waits beyond the deadline, so that Ruby's own deadline raises its error first.
      LATER = 0.01
      private_constant :LATER

      def initialize(client)
        @client = client
      end

      # Call this only where {#release} follows in any case: a guard that is not released would shut down the socket in
      # the middle of a later call.
      def hold
        number = @client.socket
        @guard = SocketGuard.allocate
        @guard.watch(number, Heddle.remaining&.+(LATER))
        # Another thread closed the client: the number may already belong to another file.
        let_go unless @client.socket == number
      rescue ::Mysql2::Error
        let_go # not connected
      end

      # @return [Boolean]
      def cut? = @cut || !!@guard&.cut?

      # Ends all waits for the server.
      def cut(error)
        @cut = true
        @reason = error.message
        hold unless @guard # a client that was not connected when the call began
        @guard&.cut
      end

      # Call this when the call has ended, on its thread: after a cut the client is unusable.
      def finish
        @client.close if mark
      end

      # Call this when the caller has stopped waiting.
      def release
        @guard&.release
        mark
      end

      private

      def mark
        cut? && @client.instance_variable_set(:@heddle_given_up, @reason || "its deadline was over")
      end

      def let_go
        @guard&.release
        @guard = nil
      end
    end
    private_constant :SocketWatch

    # Prepended to Mysql2::Client.
    #
    # @api private
    module Client
      CONNECT_TIMEOUT = 120 # mysql2's own
      private_constant :CONNECT_TIMEOUT

      def query(sql, options = {}) = MySQL2.guard(self) { super }

      def prepare(sql)
        MySQL2.guard(self) { super }.tap { |statement| statement.instance_variable_set(:@heddle_client, self) }
      end

      def ping = MySQL2.unusable?(self) ? false : MySQL2.guard(self) { super }

      def select_db(name) = MySQL2.guard(self) { super }

      # rubocop:disable Naming/AccessorMethodName -- mysql2's name
      def set_server_option(option) = MySQL2.guard(self) { super }
      # rubocop:enable Naming/AccessorMethodName

      def async_result = MySQL2.guard(self) { super }

      def store_result = MySQL2.guard(self) { super }

      def next_result = MySQL2.guard(self) { super }

      def abandon_results! = MySQL2.guard(self) { super }

      private

      # Until the server has answered there is no socket to shut down: the library's own limit, in whole seconds, ends
      # the thread after its caller has given up.
      def connect(*)
        left = Heddle.remaining
        self.connect_timeout = [left.ceil + 1, @query_options[:connect_timeout] || CONNECT_TIMEOUT].min if left
        MySQL2.guard(self) { super }
      end
    end

    # Prepended to Mysql2::Statement.
    #
    # @api private
    module Statement
      def execute(*, **)
        # A statement that was prepared before this file was loaded has no client.
        @heddle_client ? MySQL2.guard(@heddle_client) { super } : super
      end
    end

    ::Mysql2::Client.prepend(Client)
    ::Mysql2::Statement.prepend(Statement)
  end
end
