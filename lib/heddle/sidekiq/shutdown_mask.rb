# frozen_string_literal: true

module Heddle
  module SidekiqSupport
    # Has <tt>Thread.handle_interrupt(Sidekiq::Shutdown => :never)</tt> in a job delay the job's interruption. Ruby's
    # own masks delay what is raised in the thread, which all jobs of a capsule share; a job is interrupted by its task.
    #
    # @api private
    module ShutdownMask
      def handle_interrupt(mask, &block)
        return super unless mask.is_a?(Hash) && mask.key?(::Sidekiq::Shutdown) && block
        return super unless (processor = Thread.current[:heddle_processor])

        others = mask.reject { |error,| error == ::Sidekiq::Shutdown }
        processor.mask(mask[::Sidekiq::Shutdown] == :never) { others.empty? ? yield : super(others, &block) }
      end

      Thread.singleton_class.prepend(self)
    end
  end
end
