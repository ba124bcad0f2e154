# frozen_string_literal: true

require "action_controller"

module Heddle
  module Rails
    # Runs the actions of ActionController::Live, each of which Rails runs in a thread, as tasks, where their requests
    # are tasks. When the client leaves, ClientDisconnected is raised in the action wherever it waits, and not only by
    # its next write.
    #
    # An action begins with the execution state of its request, as in a thread of Rails; what {ActiveRecordSupport}
    # copies for a task is a copy: the request goes on, and leaves the blocks that it has entered.
    #
    # @api private
    module Live
      # What this stands on and Rails may change, by who has it.
      NEEDED = {
        ::ActionController::Live => %i[process new_controller_thread],
        ::ActionController::Live::Response => %i[abort committed?],
        ::ActionController::Live::Buffer => %i[write closed? ignore_disconnect],
        ::ActiveSupport::IsolatedExecutionState.singleton_class => %i[share_with context]
      }.freeze
      # In place of the thread or fiber that a state is shared with.
      State = Struct.new(:active_support_execution_state)
      private_constant :NEEDED, :State

      # What the action in this fiber begins with.
      ::Fiber.attr_accessor :heddle_live_state

      # Prepended to ActionController::Live.
      module Actions
        # A request that ends before its response begins, by its deadline or at a shutdown, takes its action with it.
        def process(...)
          super
        ensure
          @heddle_action&.cancel unless @_response.committed?
        end

        private

        def new_controller_thread(&action)
          return super unless Task.current && ::ActiveSupport::IsolatedExecutionState.isolation_level == :fiber

          of_request = Live.state
          Heddle.spawn(name: self.class.name) do
            @heddle_action = Task.current
            @_response.heddle_action = @heddle_action if @_response.is_a?(::ActionController::Live::Response)
            ::Fiber.current.heddle_live_state = State.new(of_request.merge(Live.state))
            action.call
          end
        end
      end

      # Prepended to ActiveSupport::IsolatedExecutionState's singleton class. Until version 8.1 Rails asks to share the
      # state of the request's thread, which has none if the isolation level is :fiber.
      module Sharing
        def share_with(other, ...) = super(::Fiber.current.heddle_live_state || other, ...)
      end

      # Prepended to ActionController::Live::Response.
      module Responses
        attr_accessor :heddle_action

        # The response is sent, or cannot be sent any more.
        def abort
          super
          return if heddle_action.nil? || heddle_action.ended? || stream.closed? || stream.ignore_disconnect

          @heddle_left = ::ActionController::Live::ClientDisconnected.new("client disconnected")
          heddle_action.interrupt(@heddle_left)
        end

        # A write has raised it.
        def heddle_told = @heddle_left && heddle_action.withdraw(@heddle_left)
      end

      # Prepended to ActionController::Live::Buffer.
      module Writes
        def write(...)
          super
        rescue ::ActionController::Live::ClientDisconnected
          @response.heddle_told
          raise
        end
      end
      private_constant :Actions, :Sharing, :Responses, :Writes

      class << self
        # From now on. Where Rails lacks something, its threads stay.
        #
        # @return [void]
        def install
          missing = missing(NEEDED)
          if missing.any?
            return warn("heddle: ActionController::Live keeps a thread for each stream: this Rails has no " \
              "#{missing.join(", ")}. Update Heddle")
          end

          ::ActionController::Live.prepend(Actions)
          ::ActionController::Live::Response.prepend(Responses)
          ::ActionController::Live::Buffer.prepend(Writes)
          ::ActiveSupport::IsolatedExecutionState.singleton_class.prepend(Sharing)
        end

        # @return [Hash] of the running code
        def state = ::ActiveSupport::IsolatedExecutionState.context.active_support_execution_state || {}

        # @return [Array<String>] those methods that are not there
        def missing(needed)
          needed.flat_map do |owner, names|
            lacking = names.reject { |name| owner.method_defined?(name) || owner.private_method_defined?(name) }
            lacking.map { |name| "#{owner.inspect}##{name}" }
          end
        end
      end
    end
    private_constant :Live
  end
end
