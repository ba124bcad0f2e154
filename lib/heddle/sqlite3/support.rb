# frozen_string_literal: true

module Heddle
  module SQLite3
    # What is prepended to the gem's classes. Each method that enters SQLite with a connection first waits for its turn,
    # and at its end raises what a handler has kept. It looks at a connection only if there is anything to look for at
    # all: some of these methods are called for each row.
    #
    # @api private
    module Support
      # Connections with something to wait for or to raise, and a mark once a connection has a timeout of statements.
      UNSETTLED = Handlers.unsettled
      # A statement for which SQLite puts its own busy handler back.
      PRAGMA = /\A\s*pragma\s+(?:\w+\s*\.\s*)?busy_timeout/i
      # A name that makes connections share a cache, or may do so.
      SHARED = /\Afile:.*[?&](?:[^=]*%|cache=(?!private(?:[&#]|\z)))/im
      private_constant :UNSETTLED, :PRAGMA, :SHARED

      # A busy handler of the program's.
      BusyHandler = Struct.new(:handlers, :callable) do
        def call(count) = handlers.call_busy_handler(callable, count)
      end

      class << self
        # A module with these methods, as far as the gem has them.
        #
        # @param handlers [String] an expression: those of the connection
        def guard(klass, names, handlers)
          Module.new do
            names.each do |name|
              hidden = klass.private_method_defined?(name)
              next unless hidden || klass.method_defined?(name)

              parameters = {0 => "", 1 => "(value)"}.fetch(klass.instance_method(name).arity, "(*values)")
              class_eval(<<~RUBY, __FILE__, __LINE__ + 1)
                def #{name}#{parameters}
                  UNSETTLED.empty? || #{handlers}&.enter
                  super
                ensure
                  UNSETTLED.empty? || #{handlers}&.leave
                end
              RUBY
              private name if hidden
            end
          end
        end
      end

      # Not +interrupt+ and +closed?+, which are allowed at any time, nor what only reads a statement's own data.
      DATABASE = %i[authorizer= changes close collation db_filename define_aggregator2 define_function
        define_function_with_flags deserialize disable_quirk_mode enable_load_extension encoding errcode errmsg
        extended_result_codes= last_insert_row_id load_extension load_extension_internal serialize total_changes trace
        transaction_active?].freeze
      STATEMENT = %i[clear_bindings! close reset!].freeze
      private_constant :DATABASE, :STATEMENT

      # Prepended to SQLite3::Database.
      module Database
        include Support.guard(::SQLite3::Database, DATABASE, "@heddle_handlers")

        # @return [Handlers, nil] nil for a connection that is left alone
        attr_reader :heddle_handlers

        def busy_timeout=(milliseconds)
          UNSETTLED.empty? || @heddle_handlers&.enter
          super
          @heddle_handlers&.busy_timeout = milliseconds
        end

        def busy_timeout(milliseconds)
          self.busy_timeout = milliseconds
          self
        end

        def busy_handler(handler = nil, &block)
          UNSETTLED.empty? || @heddle_handlers&.enter
          handler ||= block
          handler = BusyHandler.new(@heddle_handlers, handler) if handler && @heddle_handlers
          super(handler, &nil)
        end

        if ::SQLite3::Database.method_defined?(:statement_timeout=)
          def statement_timeout=(milliseconds)
            UNSETTLED.empty? || @heddle_handlers&.enter
            UNSETTLED[:statement_timeout] = true
            super
            @heddle_handlers&.statement_timeout = milliseconds
          end
        end

        # After a cancel the gem calls #commit, because it takes only a StandardError for a failure.
        def transaction(mode = nil, &block)
          return super unless block

          before = $!
          super do |database|
            finished = false
            value = yield(database)
            finished = true
            value
          ensure
            @heddle_cancelled = !finished && $!.is_a?(Cancellation) && !$!.equal?(before)
          end
        end

        def commit
          cancelled, @heddle_cancelled = @heddle_cancelled, false
          cancelled ? rollback : super
        end

        # SQLite has rolled back a transaction in which a write was interrupted.
        def rollback
          interrupted = $!.is_a?(Cancellation) || $!.is_a?(::Timeout::Error)
          (interrupted && !transaction_active?) || super
        end

        private

        def open_v2(file, mode, vfs)
          return super if SHARED.match?(file) || mode & ::SQLite3::Constants::Open::SHAREDCACHE != 0

          super(file, mode | ::SQLite3::Constants::Open::NOMUTEX, vfs)
          @heddle_handlers = Handlers.attach(self)
          self
        end

        def exec_batch(sql, *)
          UNSETTLED.empty? || @heddle_handlers&.enter
          return super unless @heddle_handlers && sql.match?(/busy_timeout/i)

          @heddle_handlers.with_pragma { super }
        ensure
          UNSETTLED.empty? || @heddle_handlers&.leave
        end
      end

      # Prepended to SQLite3::Statement.
      module Statement
        include Support.guard(::SQLite3::Statement, STATEMENT, "@connection&.heddle_handlers")

        # In 2.0 and later a method in Ruby, which calls +prepare+.
        PREPARE = ::SQLite3::Statement.private_method_defined?(:prepare) ? :prepare : :initialize
        private_constant :PREPARE

        define_method(PREPARE) do |database, sql|
          handlers = database.heddle_handlers
          UNSETTLED.empty? || handlers&.enter
          next super(database, sql) unless handlers && PRAGMA.match?(sql)

          handlers.with_pragma { super(database, sql) }
        ensure
          UNSETTLED.empty? || handlers&.leave
        end
        private PREPARE

        def step
          UNSETTLED.empty? || @connection&.heddle_handlers&.enter(self)
          super
        ensure
          UNSETTLED.empty? || @connection&.heddle_handlers&.leave
        end

        def bind_param(key, value)
          UNSETTLED.empty? || @connection&.heddle_handlers&.enter(self)
          super
        end
      end

      # Prepended to SQLite3::Backup.
      module Backup
        def initialize(target, target_name, source, source_name)
          @heddle_handlers = [target, source].filter_map(&:heddle_handlers)
          guard { super }
        end

        def step(pages) = guard { super }

        def finish = guard { super }

        private

        def guard
          @heddle_handlers.each(&:enter)
          yield
        ensure
          @heddle_handlers.each(&:leave)
        end
      end

      class << self
        # @raise [LoadError] if this gem is none that can be served
        def check
          database = ::SQLite3::Database.new(":memory:")
          library = DB::SQLite.const_get(:Library)
          library.load
          library.load_into(database)
          statement = database.prepare("select 1")
          return if Handlers.agree?(database, statement) && statement.instance_variable_get(:@connection).equal?(database)

          raise LoadError, "heddle/sqlite3 does not know this gem sqlite3 (#{::SQLite3::VERSION}, SQLite " \
            "#{::SQLite3::SQLITE_VERSION}): it needs 1.7 or later, with SQLite 3.44 or later; with a newer gem, " \
            "update heddle"
        ensure
          statement&.close
          database&.close
        end

        def prepend_all
          ::SQLite3::Database.prepend(Database)
          ::SQLite3::Statement.prepend(Statement)
          ::SQLite3::Backup.prepend(Backup)
        end
      end
    end
  end
end
