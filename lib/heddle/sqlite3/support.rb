# frozen_string_literal: true

module Heddle
  module SQLite3
    # What is prepended to the gem's classes. Each call that enters SQLite with a connection waits for its turn
    # ({Guards}). Some of these methods are called for each row, so they look at a connection only while there is
    # anything to look for at all.
    #
    # @api private
    module Support
      # Connections with something to wait for or to raise, and a mark once a connection has a timeout of statements.
      UNSETTLED = Handlers.unsettled
      # A statement for which SQLite puts its own busy handler back. Comments may come first, and be in the middle.
      PRAGMA = %r{\A(?:[\s;]|--[^\n]*\n|/\*.*?\*/)*+pragma\b.*busy_timeout}im
      # A name that makes connections share a cache, or may do so.
      SHARED = /\Afile:.*[?&](?:[^=]*%|cache=(?!private(?:[&#]|\z)))/im
      # Open modes of connections that are left alone: a shared cache, and one that several threads use at once.
      LEFT_ALONE = ::SQLite3::Constants::Open::SHAREDCACHE | ::SQLite3::Constants::Open::FULLMUTEX
      private_constant :UNSETTLED, :PRAGMA, :SHARED, :LEFT_ALONE

      # The bytes: a text may be in any encoding, or in none.
      def self.pragma?(sql) = sql.is_a?(String) && PRAGMA.match?(sql.b)

      # A busy handler of the program's.
      BusyHandler = Struct.new(:handlers, :callable) do
        def call(count) = handlers.call_busy_handler(callable, count)
      end
      private_constant :BusyHandler

      # Prepended to SQLite3::Database.
      module Database
        # @return [Handlers, nil] nil for a connection that is left alone
        attr_reader :heddle_handlers

        def busy_timeout=(milliseconds)
          super
          @heddle_handlers&.busy_timeout = milliseconds
        end

        def busy_timeout(milliseconds)
          self.busy_timeout = milliseconds
          self
        end

        def busy_handler(handler = nil, &block)
          handler ||= block
          @heddle_handlers&.busy_timeout = 0 # a later pragma must not put that in the handler's place
          handler = BusyHandler.new(@heddle_handlers, handler) if handler && @heddle_handlers
          super(handler, &nil)
        end

        if ::SQLite3::Database.method_defined?(:statement_timeout=)
          def statement_timeout=(milliseconds)
            super
            return unless @heddle_handlers

            @heddle_handlers.statement_timeout = milliseconds
            UNSETTLED[:statement_timeout] = true
            Handlers.install_guards
          end
        end

        # After a cancel, a timeout or a kill the gem calls #commit, as it takes only a StandardError for a failure.
        def transaction(mode = nil, &block)
          return super unless block

          before = $!
          super do |database|
            finished = false
            value = yield(database)
            finished = true
            value
          ensure
            unless finished
              @heddle_interrupted = true
              Fiber.new {}.resume # Ruby ends a killed fiber at each switch, and so here
              @heddle_interrupted = DatabaseGems.interrupted?($!.equal?(before) ? nil : $!)
            end
          end
        end

        def commit = @heddle_interrupted ? rollback : super

        # SQLite has rolled back a transaction in which a write was interrupted.
        def rollback
          interrupted = @heddle_interrupted || DatabaseGems.interrupted?($!)
          @heddle_interrupted = false
          (interrupted && !transaction_active?) || super
        end

        private

        def open_v2(file, mode, vfs)
          return super if SHARED.match?(file.b) || mode & LEFT_ALONE != 0

          super(file, mode | ::SQLite3::Constants::Open::NOMUTEX, vfs)
          @heddle_handlers = Handlers.attach(self)
          self
        end

        def exec_batch(sql, *)
          (@heddle_handlers && sql.b.match?(/busy_timeout/i)) ? @heddle_handlers.with_pragma { super } : super
        end
      end

      # Prepended to SQLite3::Statement.
      module Statement
        # Until 2.0 the constructor is in C, and prepares the statement itself.
        PREPARE = ::SQLite3::Statement.private_method_defined?(:prepare) ? :prepare : :initialize

        class_eval <<~RUBY, __FILE__, __LINE__ + 1
          private def #{PREPARE}(database, sql)
            UNSETTLED.empty? || database.heddle_handlers&.enter
            return super unless Support.pragma?(sql) && database.heddle_handlers

            database.heddle_handlers.with_pragma { super }
          end
        RUBY

        # Both may commit, and so wait for a lock; and both return, whatever SQLite says.

        def reset!
          UNSETTLED.empty? || @connection&.heddle_handlers&.enter
          super
        ensure
          UNSETTLED.empty? || Handlers.settle
        end

        def close
          UNSETTLED.empty? || @connection&.heddle_handlers&.enter
          super
        ensure
          UNSETTLED.empty? || Handlers.settle
        end
      end

      # Prepended to SQLite3::Backup, whose calls return SQLite's code.
      module Backup
        def initialize(target, target_name, source, source_name)
          @heddle_handlers = [target, source].filter_map(&:heddle_handlers)
          take_turn { super }
        end

        def step(pages) = take_turn { super }

        def finish = take_turn { super }

        private

        def take_turn
          @heddle_handlers.each(&:enter)
          yield
        ensure
          UNSETTLED.empty? || Handlers.settle
        end
      end

      # Prepended to SQLite3::Exception. The gem makes one when SQLite has stopped.
      module Exception
        def initialize(...)
          UNSETTLED.empty? || Handlers.settle
          super
        end
      end

      # The other methods that wait for their turn: see the head of ext/heddle/db/sqlite/handlers.c for when they come.
      module Guards
        # Not +interrupt+ and +closed?+, which are allowed at any time.
        DATABASE = %i[authorizer= busy_handler busy_timeout= changes close collation db_filename define_aggregator2
          define_function define_function_with_flags deserialize disable_quirk_mode enable_load_extension encoding
          errcode errmsg exec_batch extended_result_codes= last_insert_row_id load_extension load_extension_internal
          serialize statement_timeout= total_changes trace transaction_active?].freeze
        # Not what reads a statement's own data, nor +bind_param+: SQLite refuses it for a statement that runs.
        STATEMENT = %i[clear_bindings! step].freeze
        private_constant :DATABASE, :STATEMENT

        class << self
          # @return [Array<Class, Module>] classes of the gem, and after each the module to prepend
          def all
            statement = ::SQLite3::Statement
            [::SQLite3::Database, guard(::SQLite3::Database, DATABASE, "@heddle_handlers&.enter"),
              statement, guard(statement, STATEMENT, "@connection&.heddle_handlers&.enter(self)")]
          end

          private

          # A module with these methods, as far as the gem has them.
          def guard(klass, names, enter)
            Module.new do
              names.each do |name|
                hidden = klass.private_method_defined?(name)
                next unless hidden || klass.method_defined?(name)

                parameters = {0 => "", 1 => "(value)"}.fetch(klass.instance_method(name).arity, "(*values)")
                class_eval(<<~RUBY, __FILE__, __LINE__ + 1)
                  def #{name}#{parameters}
                    UNSETTLED.empty? || #{enter}
                    super
                  end
                RUBY
                private name if hidden
              end
            end
          end
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
          known = statement.instance_variable_get(:@connection).equal?(database)
          return if known && Handlers.agree?(database, statement)

          raise LoadError, "heddle/sqlite3 does not know this gem sqlite3 (#{::SQLite3::VERSION}, SQLite " \
            "#{::SQLite3::SQLITE_VERSION}): it needs 1.7 or later, with SQLite 3.44 or later; with a newer gem, " \
            "update heddle"
        ensure
          statement&.close
          database&.close
        end

        def install
          ::SQLite3::Database.prepend(Database)
          ::SQLite3::Statement.prepend(Statement)
          ::SQLite3::Backup.prepend(Backup)
          ::SQLite3::Exception.prepend(Exception)
          Handlers.guard_by(Guards.all)
          # What was suspended is so in the parent.
          AfterFork.register { UNSETTLED.delete_if { |key, _| key.is_a?(Handlers) } }
        end
      end
    end
    private_constant :Support
  end
end
