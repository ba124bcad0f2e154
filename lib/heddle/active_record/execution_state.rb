# frozen_string_literal: true

require_relative "../core/inheritance"

module Heddle
  module ActiveRecordSupport
    # Carries Rails' state of the running code (ActiveSupport::IsolatedExecutionState: the shard and role of
    # `connected_to`, `while_preventing_writes`, encryption's context, Current attributes, Time.zone, log tags, leased
    # connections) into {Heddle.run} and tasks.
    #
    # - The block of {Heddle.run} is a part of its caller's code, and has the caller's state: the same objects, the same
    #   connections, the same transaction.
    # - A task of {Heddle.spawn} or of a pool begins with a copy as it stood at the spawn, and leases connections of its
    #   own. So does a block of {Heddle.offload}.
    #
    # @api private
    module ExecutionState
      AS_IT_IS = :itself.to_proc
      DUPLICATE = :dup.to_proc
      MEMBERS = ->(object, *names, copy) do
        object.dup.tap do |copied|
          names.each { |name| copied.instance_variable_set(name, copy.call(copied.instance_variable_get(name))) }
        end
      end
      CURRENT = ->(instances) do
        instances.transform_values { |instance| MEMBERS.call(instance, :@attributes, DUPLICATE) }
      end
      CONTEXT = ->(context) do # a Hash until ActiveSupport 8.0
        next context.dup if context.is_a?(Hash)

        MEMBERS.call(MEMBERS.call(context, :@store, :@stack, DUPLICATE), :@current_attributes_instances, CURRENT)
      end
      LOG_TAGS = ->(stack) { MEMBERS.call(stack, :@tags, DUPLICATE) }

      # What tasks get a copy of, and how. The rest belongs to one execution: counters, caches, instrumentation,
      # registries of blocks that are under way.
      COPIES = {
        active_record_connected_to_stack: DUPLICATE, active_record_prohibit_shard_swapping: AS_IT_IS,
        active_record_prevent_writes: AS_IT_IS, active_record_connection_handler: AS_IT_IS,
        current_attributes_instances: CURRENT, active_support_execution_context: CONTEXT,
        time_zone: AS_IT_IS, beginning_of_week: AS_IT_IS
      }.freeze
      # Behind these stands the number of an object: of a logger, and of ActiveRecord::Encryption.
      COPIES_BY_PREFIX = {
        "activesupport_tagged_logging_tags:" => LOG_TAGS, "attr_custom_contexts_" => DUPLICATE
      }.freeze
      private_constant :AS_IT_IS, :DUPLICATE, :MEMBERS, :CURRENT, :CONTEXT, :LOG_TAGS, :COPIES, :COPIES_BY_PREFIX

      # The fiber whose code this fiber's task continues, and that fiber's task.
      ::Fiber.attr_accessor :heddle_continues, :heddle_continued_task
      # The fiber or thread whose code spawned this fiber's task, and the task of that code.
      ::Fiber.attr_accessor :heddle_spawner, :heddle_spawners_task

      # ActiveSupport's scope for the isolation level :fiber, in place of Fiber.
      module Fibers
        def self.current
          fiber = ::Fiber.current
          fiber.heddle_continues || fiber
        end
      end

      # Prepended to IsolatedExecutionState's singleton class.
      module Level
        def isolation_level=(level)
          super
          @scope = Fibers if level == :fiber
        end
      end
      private_constant :Fibers, :Level

      class << self
        # From now on. Called once.
        def install
          state.singleton_class.prepend(Level)
          level = state.isolation_level
          state.instance_variable_set(:@scope, Fibers) if level == :fiber
          Inheritance.add(self)
        end

        # The task whose code runs here, through all runs that continue it.
        #
        # @return [Task, nil]
        def task = ::Fiber.current.heddle_continued_task || Task.current

        # @return [Proc] the block, which then has the state of the code that calls this
        def continued(block)
          caller, task, holder = Fibers.current, task(), Interlock.holder
          proc do
            fiber = ::Fiber.current
            fiber.heddle_continues, fiber.heddle_continued_task = caller, task
            Interlock.hand(holder)
            block.call
          ensure
            fiber.heddle_continues = fiber.heddle_continued_task = nil
          end
        end

        # @return [Proc] the block, which then has a copy of this code's state, in a task or on another thread, and
        #   gives back what it leased
        def inherited(block)
          here, task, holder = state.context, task(), Interlock.holder
          copied = copy(here.active_support_execution_state)
          proc do |*arguments|
            there = state.context
            next block.call(*arguments) if there.equal?(here) # the isolation level :thread, in a task

            before, there.active_support_execution_state = there.active_support_execution_state, copied
            begin
              spawned_by(there, here, task)
              Interlock.hand(holder)
              block.call(*arguments)
            ensure
              spawned_by(there, nil, nil)
              ActiveRecordSupport.give_back(there)
              there.active_support_execution_state = before
            end
          end
        end

        alias_method :offloaded, :inherited

        private

        def state = ActiveSupport::IsolatedExecutionState

        def spawned_by(context, spawner, task)
          return unless context.is_a?(::Fiber)

          context.heddle_spawner, context.heddle_spawners_task = spawner, task
        end

        def copy(values)
          copied = nil
          values&.each do |key, value|
            copies = COPIES[key] || (key.is_a?(String) && by_prefix(key))
            (copied ||= {})[key] = copies.call(value) if copies && !value.nil?
          end
          copied
        end

        def by_prefix(key) = COPIES_BY_PREFIX.find { |prefix, _| key.start_with?(prefix) }&.last
      end
    end
  end
end
