# frozen_string_literal: true

module Heddle
  module ActiveRecordSupport
    # A task asked for a connection that another task of its thread uses. See {Leases}.
    class SharedConnection < ::ActiveRecord::ActiveRecordError
      include Heddle::Error
    end

    # Tracks which task uses the connection that a pool has leased to a thread, with isolation level :thread.
    #
    # ActiveRecord gives that connection to every fiber of the thread. Two fibers that use it at once read each other's
    # answers, and libpq crashes. So while a task holds the connection, or waits for it, other tasks get an error. Code
    # outside of tasks gets none: it cannot run while the thread's loop runs.
    #
    # @api private
    module LeaseOwners
      TABLE = :heddle_active_record_lease_owners
      private_constant :TABLE

      class << self
        # Notes that the current task uses the pool's connection.
        #
        # @raise [SharedConnection] when another task uses the connection
        def claim(pool)
          return unless by_thread? && (task = ExecutionState.task)
          table = Thread.current.thread_variable_get(TABLE)
          Thread.current.thread_variable_set(TABLE, table = {}.compare_by_identity) unless table
          holder = table[pool]
          raise SharedConnection, refusal(task, holder) if holder && !holder.equal?(task) && !holder.ended?
          table[pool] = task
        end

        # Releases the current task's hold if the pool's lease to this thread has ended.
        def settle(pool)
          table = Thread.current.thread_variable_get(TABLE)
          return unless table&.key?(pool) && table[pool].equal?(ExecutionState.task)
          table.delete(pool) unless pool.active_connection?
        end

        # Whether another task uses this thread's connection of the pool.
        def elsewhere?(pool)
          return false unless by_thread? && (task = ExecutionState.task)
          holder = Thread.current.thread_variable_get(TABLE)&.[](pool)
          holder ? !holder.equal?(task) && !holder.ended? : false
        end

        private

        def by_thread? = ActiveSupport::IsolatedExecutionState.isolation_level == :thread

        def refusal(task, holder)
          "This task#{named(task)} would share its database connection with another task#{named(holder)}, as both " \
            "run in one thread and the isolation level is :thread. To give each task a connection of its own, write " \
            "config.active_support.isolation_level = :fiber in config/application.rb, or without Rails " \
            "ActiveSupport::IsolatedExecutionState.isolation_level = :fiber before the first query"
        end

        def named(task) = task.name && " (#{task.name})"
      end
    end
    private_constant :LeaseOwners

    # Prepended to ActiveRecord's ConnectionPool.
    #
    # @api private
    module Leases
      # The two names of one method: ActiveRecord 7.1 has the first only, 8.0 the second.
      %i[connection lease_connection].each do |name|
        next unless ::ActiveRecord::ConnectionAdapters::ConnectionPool.method_defined?(name)

        define_method(name) do
          LeaseOwners.claim(self)
          begin
            super()
          ensure
            LeaseOwners.settle(self)
          end
        end
      end

      %i[active_connection? active_connection].each do |name|
        next unless ::ActiveRecord::ConnectionAdapters::ConnectionPool.method_defined?(name)

        define_method(name) { LeaseOwners.elsewhere?(self) ? nil : super() }
      end

      def with_connection(...)
        LeaseOwners.claim(self)
        begin
          super
        ensure
          LeaseOwners.settle(self)
        end
      end

      def release_connection(...) = LeaseOwners.elsewhere?(self) ? false : super

      def checkin(...)
        super
      ensure
        LeaseOwners.settle(self)
      end

      def remove(...)
        super
      ensure
        LeaseOwners.settle(self)
      end
    end
    private_constant :Leases
  end
end
