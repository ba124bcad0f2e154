# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on rubies: :ends, backends: :one

# Thread#raise or Thread#kill interrupts a thread that is in Heddle.map, at each moment at which Ruby lets one in. The
# call ends, and so do all its blocks, most of which would wait for ever: each is cancelled.
class InterruptedMapTest < Minitest::Test
  include LoopHelpers

  mode :thread
  hard_deadline 120

  Interrupted = Class.new(Exception) # rubocop:disable Lint/InheritException -- nobody is to rescue it

  EVENTS = %i[return c_return b_return].freeze
  # Ruby's own instructions perform these, and check for no interrupt; Ruby itself calls the last one.
  OPERATORS = %i[+ - < > <= ! == [] []= << key? empty? size first backtrace].freeze

  INTERRUPTS = {raise: -> { raise Interrupted }, kill: -> { Thread.current.kill }}.freeze
  WAYS = {
    alone: ->(map) { map.call },
    in_a_run: ->(map) { Heddle.run(&map) },
    in_a_task: ->(map) { Heddle.run { Heddle.spawn(&map).value } }
  }.freeze

  INTERRUPTS.each do |how, interrupt|
    WAYS.each do |where, way|
      define_method("test_#{how}_#{where}") do
        moment = 0
        moment += 1 while interrupted?(moment + 1, interrupt, way)
        assert_operator moment, :>, 100
      end
    end
  end

  private

  # False when the map was over before that moment.
  def interrupted?(moment, interrupt, way)
    living, place = [], nil
    thread = in_background do
      interrupted_at(moment, ->(point) { (place = point) && interrupt.call }) { way.call(-> { map(living) }) }
    rescue Interrupted, RuntimeError
      nil
    end
    assert thread.join(stretched(10)), "it did not end after an interrupt at #{place}; #{living.size} blocks wait"
    assert_empty living, "blocks have not ended after an interrupt at #{place}"
    place
  end

  def map(living)
    Heddle.map(0..8, fibers: 3) do |item|
      living << item
      sleep(0.0002)
      raise "the end of all" if item == 4

      sleep if item > 1
    ensure
      living.delete(item)
    end
  end

  def interrupted_at(moment, interrupt, &block)
    seen = 0
    trace = TracePoint.new(*EVENTS) do |point|
      next unless point.path&.end_with?("fiber_pool.rb", "heddle/map.rb") && !OPERATORS.include?(point.method_id)
      next unless (seen += 1) == moment

      interrupt.call("#{point.event} #{point.method_id} at #{point.path}:#{point.lineno}")
    end
    trace.enable(target_thread: Thread.current, &block)
  end
end
