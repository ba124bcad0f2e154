# frozen_string_literal: true

require_relative "core/required_gem"
Heddle::RequiredGem.load("async", "heddle/async", "async, 2.0 or later")
require "heddle"
require_relative "async/scheduler"

module Heddle
  # `require "heddle/async"` runs Async's tasks on Heddle's loop: in a program that only says `Async { }` or `Sync { }`,
  # and inside {Heddle.run}.
  #
  # Async's classes stay as they are. Their `new` gives a subclass that waits in Heddle's loop, where a program does not
  # ask for a selector of its own.
  #
  # @api private
  module AsyncSubstitution
    def new(*arguments, selector: nil, **options, &block)
      refuse_in_task if self <= ::Async::Reactor
      substitute = SUBSTITUTES[self] unless selector
      return substitute.new(*arguments, **options, &block) if substitute

      options[:selector] = selector if selector
      super(*arguments, **options, &block)
    end

    SUBSTITUTES = {::Async::Scheduler => AsyncScheduler, ::Async::Reactor => AsyncReactor}.freeze
    private_constant :SUBSTITUTES

    ::Async::Scheduler.extend(self)

    private

    # A reactor takes the place of the thread's scheduler, which closes. Ruby takes off a scheduler whose close raises,
    # and the waits of the running task would never end.
    def refuse_in_task
      running = Task.current if Fiber.scheduler.is_a?(Loop)
      raise ThreadError, "#{running.inspect} cannot close the scheduler that runs it" if running
    end
  end
  private_constant :AsyncSubstitution

  Loop.made_as = AsyncHost
end
