# frozen_string_literal: true

module Heddle
  module AsyncLoop
    # Async::Task makes a Fiber for each task, which is half of what an empty task costs. This runs the task on a fiber
    # that has run other tasks, as {Heddle.spawn} does. Replaces Async::Task#schedule of the versions in {VERSIONS}; any
    # other keeps its own, and costs more.
    module Task
      # Async's versions whose method does what this one does.
      VERSIONS = [Gem::Requirement.new("~> 2.23.0"), Gem::Requirement.new("~> 2.46.0")].freeze

      private

      def schedule
        scheduler = Fiber.scheduler
        return super unless scheduler.is_a?(AsyncLoop)

        named = annotation
        scheduler.__send__(:start_external_task, self) do
          @fiber = Fiber.current
          @fiber.annotation = named if named
          @fiber.async_task = self
          begin
            completed!(yield)
          rescue ::Async::Stop => exception
            end_by(exception)
          rescue => error
            failed!(error)
          rescue Exception => exception # rubocop:disable Lint/RescueException
            failed!(exception)
            raise
          ensure
            finish!
          end
        end
      end

      if ::Async::Task.private_method_defined?(:cancelled!)
        def end_by(exception) = cancelled!(exception.cause || exception)
      else
        def end_by(_exception) = stopped!
      end

      version = Gem::Version.new(::Async::VERSION)
      ::Async::Task.prepend(self) if VERSIONS.any? { |versions| versions.satisfied_by?(version) }
    end
    private_constant :Task
  end
end
