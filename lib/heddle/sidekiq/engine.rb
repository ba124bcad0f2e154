# frozen_string_literal: true

require "sidekiq/launcher"
require_relative "batch_fetch"
require_relative "dispatcher"
require_relative "fiber_manager"
require_relative "fiber_processor"
require_relative "shutdown_mask"
require_relative "signals"
require_relative "sub_tasks"

module Heddle
  module SidekiqSupport
    # Gives capsules with fibers a {FiberManager} and {FiberProcessor}s where Sidekiq makes a Manager and Processors.
    #
    # @api private
    module Substitution
      def new(capsule, *arguments, &block)
        substitute = SUBSTITUTES[self]
        return super unless substitute && capsule.is_a?(::Sidekiq::Capsule) && capsule.heddle?

        substitute.new(capsule, *arguments, &block)
      end

      SUBSTITUTES = {::Sidekiq::Manager => FiberManager, ::Sidekiq::Processor => FiberProcessor}.freeze
      private_constant :SUBSTITUTES

      ::Sidekiq::Manager.extend(self)
      ::Sidekiq::Processor.extend(self)
    end
    private_constant :Substitution
  end
end
