# frozen_string_literal: true

require "heddle" unless defined?(Heddle::FiberPool)
require "active_support"
require "active_support/lazy_load_hooks"

module Heddle
  # Keeps each task to a connection of its own.
  #
  # With isolation level :thread, which is Rails' default, ActiveRecord gives one connection to all tasks of a thread.
  # The second task that asks for it is refused with a SharedConnection, which says what line to write.
  #
  # With <tt>ActiveSupport::IsolatedExecutionState.isolation_level = :fiber</tt> a connection belongs to the fiber
  # that checked it out. A task that ends without giving it back leaves that to ActiveRecord's reaper, which takes
  # back what a *dead* fiber owns. A fiber that Heddle used again would stay alive, and its next task would find the
  # connection, and any transaction open on it, as its own. So a fiber that owns a connection at the end of its task
  # runs no other: it dies, the connection is reaped, and the next task checks out another.
  #
  # What interrupts a query, in a task or in a thread, ends it on PostgreSQL, too, and no connection goes back to its
  # pool in the middle of a conversation.
  #
  # Loaded by itself where ActiveSupport was loaded before +heddle+, as in Rails, or before a Heddle.run or the making
  # of a pool; otherwise, and always safely:
  #
  #   require "heddle/active_record"
  #
  # ActiveRecord 7.1 and later. In 7.0 a connection belongs to the thread whatever the isolation level, so no fiber ever
  # owns one, and all tasks of a thread would share it: do not run concurrent tasks on ActiveRecord 7.0.
  module ActiveRecordSupport
    class << self
      # Starts to retire the fibers that own a connection, to refuse connections that another task is at work on, and
      # to end the queries that were interrupted. Called once ActiveRecord::Base is loaded; a second call does
      # nothing.
      #
      # @return [void]
      def install
        return if @installed
        @installed = true
        FiberPool.retire_if { |fiber| holds?(fiber) }
        return if ::ActiveRecord.version < Gem::Version.new("7.1")

        require_relative "active_record/leases"
        require_relative "active_record/interrupted"
        ::ActiveRecord::ConnectionAdapters::ConnectionPool.prepend(Leases, Returns)
        ::ActiveRecord::ConnectionAdapters::AbstractAdapter.prepend(Adapter)
        %i[mysql2 trilogy sqlite3].each do |name|
          ActiveSupport.on_load(:"active_record_#{name}adapter") { prepend Preparation }
        end
      end

      # Says once what a Rails program that loads its classes when they are first used meets on Ruby 3.1.
      #
      # @param app [Rails::Application]
      # @return [void]
      def advise(app)
        return if RUBY_VERSION >= "3.2" || app.config.eager_load || @advised

        @advised = true
        warn "heddle: on Ruby 3.1 a class that one task is loading is half loaded for the others. Write " \
          "config.eager_load = true in config/environments/#{Rails.env}.rb"
      end

      # Does this fiber own a connection of any ActiveRecord pool? Never waits: while another fiber or thread is at work
      # inside a pool the answer is yes, since a fiber retired in vain is cheap, and a connection inherited is not.
      #
      # @param fiber [Fiber]
      # @return [Boolean]
      def holds?(fiber)
        return false unless ActiveSupport::IsolatedExecutionState.isolation_level == :fiber
        pools(fiber).any? { |pool| leases_to?(pool, fiber) }
      end

      private

      # Base.connection_handler says the same of the current fiber, and leaves a Hash on it each time.
      def pools(fiber)
        state = fiber.active_support_execution_state
        handler = (state && state[:active_record_connection_handler]) || ::ActiveRecord::Base.default_connection_handler
        # 7.0 has no each_connection_pool.
        handler.respond_to?(:each_connection_pool) ? handler.each_connection_pool : handler.all_connection_pools
      end

      def leases_to?(pool, fiber)
        return true unless pool.mon_try_enter
        begin
          # No list at all: the pool was discarded after a fork.
          pool.connections&.any? { |connection| connection.owner.equal?(fiber) }
        ensure
          pool.mon_exit
        end
      end
    end
  end
end

ActiveSupport.on_load(:after_initialize, yield: true) { |app| Heddle::ActiveRecordSupport.advise(app) }
ActiveSupport.on_load(:active_record) { Heddle::ActiveRecordSupport.install }
