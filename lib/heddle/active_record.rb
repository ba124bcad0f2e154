# frozen_string_literal: true

require_relative "map" # brings runs and pools; the whole of Heddle may be about to be loaded
require_relative "core/required_gem"
Heddle::RequiredGem.load("active_support", "heddle/active_record", "activerecord, 7.1 or later")
require "active_support/lazy_load_hooks"

module Heddle
  # Makes each task use a connection of its own.
  #
  # With isolation level :thread, which is Rails' default, ActiveRecord gives one connection to all tasks of a thread.
  # A second task that asks for the connection gets a SharedConnection error, whose message has the line to write.
  #
  # With <tt>ActiveSupport::IsolatedExecutionState.isolation_level = :fiber</tt> a connection belongs to the fiber
  # that checked it out. The block of Heddle.run continues its caller's code: it has the caller's connections,
  # transaction, shard, role, Current attributes, Time.zone and log tags. A task has copies of these, as they stood at
  # its spawn, and connections of its own, which return to their pools when it ends. So it does not see what its
  # spawner's transaction has not committed: see {UncommittedRow}.
  #
  # If a task ends inside a transaction, or without returning a connection that it checked out itself, ActiveRecord's
  # reaper takes the connection back, but only from a *dead* fiber. A reused fiber would stay alive, and its next task
  # would inherit the connection with the open transaction. So such a fiber is not reused: it dies, the connection is
  # reaped, and the next task checks out another.
  #
  # Where classes are reloaded, as in development, a reload waits for the jobs and requests that run as tasks.
  #
  # Current attributes, Time.zone and log tags also reach the tasks of a Rails application that has no ActiveRecord, or
  # has not loaded it yet, from the end of its initialization on.
  #
  # <tt>config.active_record.async_query_executor</tt> may be an executor, such as {Executor}, for `load_async`.
  #
  # An interrupted query, in a task or in a thread, is also cancelled on a PostgreSQL server, and no connection returns
  # to its pool in the middle of an exchange.
  #
  # Loaded automatically if ActiveSupport was loaded before +heddle+, as in Rails, or before a Heddle.run or the
  # creation of a pool. Otherwise, and always safely:
  #
  #   require "heddle/active_record"
  #
  # Needs ActiveRecord 7.1 or later. In 7.0 a connection belongs to the thread at every isolation level, so that all
  # tasks of a thread share it: do not run concurrent tasks on ActiveRecord 7.0.
  module ActiveRecordSupport
    # Whether the fiber's task has given all connections back. Heddle clears it before the next task.
    ::Fiber.attr_accessor :heddle_leases_ended

    LEAST = Gem::Version.new("7.1")
    private_constant :LEAST

    class << self
      # Carries ActiveSupport's state into runs and tasks, from now on. A second call does nothing.
      #
      # @api private
      # @return [void]
      def carry_state
        return if @carries_state
        @carries_state = true
        require_relative "active_record/execution_state"
        require_relative "active_record/interlock"
        ExecutionState.install
        Interlock.install
      end

      # Carries Rails' state into runs and tasks, retires fibers that own a connection, refuses connections that another
      # task uses, and ends interrupted queries, from now on. Called when ActiveRecord::Base is loaded; a second call
      # does nothing.
      #
      # @return [void]
      def install
        return if @installed
        @installed = true
        FiberPool.retire_if { |fiber| !fiber.heddle_leases_ended && holds?(fiber) }
        return if ::ActiveRecord.version < LEAST

        carry_state
        require_relative "active_record/async_queries"
        require_relative "active_record/leases"
        require_relative "active_record/uncommitted"
        Uncommitted.install
        require_relative "active_record/interrupted"
        ::ActiveRecord::ConnectionAdapters::ConnectionPool.prepend(Leases, Returns, AsyncQueries)
        ::ActiveRecord::ConnectionAdapters::AbstractAdapter.prepend(Adapter)
        %i[mysql2 trilogy sqlite3].each do |name|
          ActiveSupport.on_load(:"active_record_#{name}adapter") { prepend Preparation }
        end
        ActiveSupport.on_load(:active_record_sqlite3adapter) { prepend RolledBack }
      end

      # Called when a Rails application has been initialized, with ActiveRecord or without.
      #
      # @api private
      # @param app [Rails::Application]
      # @return [void]
      def initialized(app)
        advise(app)
        carry_state if ::ActiveSupport.version >= LEAST
      end

      # Warns once about a danger of lazy class loading on Ruby 3.1, in a Rails program without eager_load.
      #
      # @param app [Rails::Application]
      # @return [void]
      def advise(app)
        return if RUBY_VERSION >= "3.2" || app.config.eager_load || @advised

        @advised = true
        warn "heddle: on Ruby 3.1 a class that one task is loading is half loaded for the others. Write " \
          "config.eager_load = true in config/environments/#{::Rails.env}.rb"
      end

      # Whether this fiber owns a connection of any ActiveRecord pool. Never waits: returns true while another fiber or
      # thread works inside a pool, since a needlessly retired fiber is cheap, and an inherited connection is dangerous.
      #
      # @param fiber [Fiber]
      # @return [Boolean]
      def holds?(fiber)
        return false unless ActiveSupport::IsolatedExecutionState.isolation_level == :fiber
        pools(fiber).any? { |pool| leases_to?(pool, fiber) }
      end

      # Returns a task's connections to their pools at its end, but not in a transaction: as Rails does at
      # the end of a request. The fiber that keeps such a connection is retired, so that ActiveRecord takes it back.
      #
      # @api private
      # @param owner [Fiber, Thread] a thread keeps its connections, as in Rails
      # @return [void]
      def give_back(owner)
        return unless @installed && owner.is_a?(::Fiber)
        return owner.heddle_leases_ended = true unless holds?(owner)

        pools(owner).each do |pool|
          connection = pool.connections&.find { |one| one.owner.equal?(owner) } or next
          transaction = connection.current_transaction
          pool.release_connection unless transaction.open? && transaction.joinable?
        end
      end

      private

      # Base.connection_handler would return the same, but leaves a Hash on the current fiber each time.
      def pools(fiber)
        state = fiber.active_support_execution_state
        handler = (state && state[:active_record_connection_handler]) || ::ActiveRecord::Base.default_connection_handler
        # 7.0 has no each_connection_pool.
        handler.respond_to?(:each_connection_pool) ? handler.each_connection_pool : handler.all_connection_pools
      end

      def leases_to?(pool, fiber)
        return true unless pool.mon_try_enter
        begin
          # The pool has no list after it was discarded by a fork.
          pool.connections&.any? { |connection| connection.owner.equal?(fiber) }
        ensure
          pool.mon_exit
        end
      end
    end
  end
end

ActiveSupport.on_load(:after_initialize, yield: true) { |app| Heddle::ActiveRecordSupport.initialized(app) }
ActiveSupport.on_load(:active_record) { Heddle::ActiveRecordSupport.install }
