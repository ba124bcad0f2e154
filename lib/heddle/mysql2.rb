# frozen_string_literal: true

require "heddle" unless defined?(Heddle::Scheduler)
require "mysql2"
require_relative "offload"

module Heddle
  # Has Mysql2::Client wait on a thread, so that neither a query nor a connect stops the loop, and gives both deadlines.
  #
  #   require "heddle/mysql2"
  #
  # libmariadb reads a reply in a loop of its own: after the first byte neither a scheduler nor an exception reaches it
  # before the last. So wherever a scheduler or a {Heddle.deadline} is in force, each call that talks to the server runs on a
  # thread of its own, as {Heddle.offload} has them but without a limit, and an exception that ends the caller's wait (a deadline, a cancel, an interrupt) shuts
  # the socket down under the call. The client is then closed and stays unusable ({Unusable}): nobody is handed the rest of an
  # answer that was meant for somebody else. Everywhere else mysql2 is as it was.
  #
  # Covers connecting (`Mysql2::Client.new`), `query`, `prepare`, `Statement#execute`, `ping`, `select_db`,
  # `set_server_option`, `async_result`, `store_result`, `next_result` and `abandon_results!`. Not the rows of `stream: true`,
  # which `each` reads from the network: wrap query and `each` in one {Heddle.offload}.
  module MySQL2
    # A client that gave up in the middle of a call. `ping` says false, as for any lost connection.
    class Unusable < ::Mysql2::Error::ConnectionError
      include Error
    end

    # Seconds: a wait that the deadline, which is over, ends at once.
    PATIENCE = 1

    # As many as there are calls. Whoever holds a lock in the database needs a thread to let go of it, while all who wait for that
    # lock have theirs: with any fewer the last one would wait for the first, and they for it.
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

        line = Line.new(client)
        begin
          line.hold
          work = lambda do
            yield
          ensure
            line.finish
          end
          value = WORKERS.run(work, grace: Offload::GRACE, interrupt: line.method(:cut))
          # A ping says false of a socket that was shut down at the deadline. A wait says what is the matter.
          sleep(PATIENCE) if line.cut? && Heddle.remaining&.zero?
          value
        ensure
          line.release
        end
      end

      # @return [Boolean] whether calls are to be made on a thread here
      def hop? = !!(Fiber.current_scheduler || Heddle.remaining)

      # @return [Boolean]
      def unusable?(client) = client.instance_variable_defined?(:@heddle_given_up)

      private

      def refuse(client)
        return unless unusable?(client)

        raise Unusable, "this Mysql2::Client gave up in the middle of a call (#{client.instance_variable_get(:@heddle_given_up)}) " \
          "and its connection was shut down: make a new client"
      end
    end

    # A hold of a client's socket from outside of the call that uses it. Some calls of mysql2 wait while they hold Ruby's
    # lock, so that no thread could do anything at the deadline: {SocketGuard} does not need one.
    class Line
      # Seconds by which Ruby is let go first, so that the call ends with the deadline's error.
      LATER = 0.01
      private_constant :LATER

      def initialize(client)
        @client = client
      end

      # To be called where {#release} follows, whatever strikes: a guard that nobody releases would shut the socket down in
      # the middle of a later call.
      def hold
        number = @client.socket
        @guard = SocketGuard.allocate
        @guard.watch(number, Heddle.remaining&.+(LATER))
        let_go unless @client.socket == number # another thread closed the client, and the number may have been another file's
      rescue ::Mysql2::Error
        let_go # not connected
      end

      # @return [Boolean]
      def cut? = @cut || !!@guard&.cut?

      # Ends whatever waits for the server.
      def cut(error)
        @cut = true
        @reason = error.message
        hold unless @guard # a client that was not connected when the call began
        @guard&.cut
      end

      # To be called when the call has ended, on its thread: after a cut the client is of no use to anybody.
      def finish
        @client.close if mark
      end

      # To be called when nobody waits for the call any more.
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
    private_constant :Line

    # @api private Prepended to Mysql2::Client.
    module Client
      CONNECT_TIMEOUT = 120 # mysql2's own
      private_constant :CONNECT_TIMEOUT

      def query(sql, options = {}) = MySQL2.guard(self) { super }

      def prepare(sql)
        MySQL2.guard(self) { super }.tap { |statement| statement.instance_variable_set(:@heddle_client, self) }
      end

      def ping = MySQL2.unusable?(self) ? false : MySQL2.guard(self) { super }

      def select_db(name) = MySQL2.guard(self) { super }

      def set_server_option(option) = MySQL2.guard(self) { super } # rubocop:disable Naming/AccessorMethodName -- mysql2's name

      def async_result = MySQL2.guard(self) { super }

      def store_result = MySQL2.guard(self) { super }

      def next_result = MySQL2.guard(self) { super }

      def abandon_results! = MySQL2.guard(self) { super }

      private

      # Until the server has answered there is no socket to shut down: the library's own limit, in whole seconds, ends a
      # thread that nobody waits for any more.
      def connect(*)
        left = Heddle.remaining
        self.connect_timeout = [left.ceil + 1, @query_options[:connect_timeout] || CONNECT_TIMEOUT].min if left
        MySQL2.guard(self) { super }
      end
    end

    # @api private Prepended to Mysql2::Statement.
    module Statement
      def execute(*, **)
        # One that was prepared before this file was loaded knows no client.
        @heddle_client ? MySQL2.guard(@heddle_client) { super } : super
      end
    end

    ::Mysql2::Client.prepend(Client)
    ::Mysql2::Statement.prepend(Statement)
  end
end
