# frozen_string_literal: true

# The ways in which a program can run its fibers, so that one test body can be compared under each.
#
#   Hosts.run(:heddle) { |spawn| Array.new(3) { |i| spawn.call { i } }.map(&:value) }   # => [0, 1, 2]
#
# heddle::    Heddle.run and Heddle.spawn
# scheduler:: Fiber.set_scheduler(Heddle::Scheduler.new) and Fiber.schedule, Ruby's plain way
# async::     Heddle.run and Heddle.spawn inside the event loop of the gem async
module Hosts
  ALL = %i[heddle scheduler async].freeze

  # The outcome of a block given to Fiber.schedule, which has no value of its own.
  class Scheduled
    def initialize(&block)
      @outcome = Thread::Queue.new
      Fiber.schedule do
        @outcome << begin
          [:value, block.call]
        rescue => e
          [:error, e]
        end
      end
    end

    def value
      kind, result = @outcome.pop
      raise result if kind == :error
      result
    end
  end

  # The last async that installs on Ruby 3.1 (2.24) asks every IO for its timeout, which IO has only since 3.2: its
  # waits without a timeout and its reads raise NoMethodError. Its waits are given a timeout that never passes; its
  # hook for reads is removed, so that Ruby waits with io_wait instead.
  module AsyncOn31
    FOREVER = 86_400

    def io_wait(io, events, timeout = nil) = super(io, events, timeout || FOREVER)
  end
  private_constant :AsyncOn31

  class << self
    # Runs the block under +host+ and returns its value. Yields a callable that starts a block as a task and returns
    # something with a +value+.
    def run(host, &block)
      case host
      when :heddle then Heddle.run { block.call(Heddle.method(:spawn)) }
      when :scheduler then run_scheduler(&block)
      when :async then run_async(&block)
      else raise ArgumentError, "no host #{host.inspect}: have #{ALL.inspect}"
      end
    end

    # Why this host is not available, or nil.
    def missing(host)
      return unless host == :async
      require "async"
      nil
    rescue LoadError
      "the gem async is not installed (gem install async)"
    end

    private

    def run_scheduler(&block)
      thread = Thread.new do
        Thread.current.report_on_exception = false
        Fiber.set_scheduler(Heddle::Scheduler.new)
        outcome = nil
        Fiber.schedule do
          outcome = [:value, block.call(->(&work) { Scheduled.new(&work) })]
        rescue => e
          outcome = [:error, e]
        end
        Fiber.set_scheduler(nil) # closes it, which runs every fiber to its end
        outcome
      end
      kind, result = thread.value
      raise result if kind == :error
      result
    end

    def run_async(&block)
      require "async"
      mend_async unless IO.method_defined?(:timeout)
      Async { Heddle.run { block.call(Heddle.method(:spawn)) } }.wait
    end

    def mend_async
      return if Async::Scheduler < AsyncOn31
      Async::Scheduler.prepend(AsyncOn31)
      Async::Scheduler.undef_method(:io_read) if Async::Scheduler.method_defined?(:io_read)
    end
  end
end
