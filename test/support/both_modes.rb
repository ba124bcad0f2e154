# frozen_string_literal: true

# Defines the tests of a suite twice: NAMEThreadTest runs them in plain threads, NAMEFiberTest in tasks. A suite calls
# `in_host { … }` for what has to run in a task.
module BothModes
  # @param name [String] of the classes
  # @param suites [Array<Module>] to include, in this order
  # @yield evaluated in each class, after the suites were included
  def self.define(name, *suites, &block)
    %i[thread fiber].each do |wait|
      test = Class.new(Minitest::Test) do
        suites.each { |suite| include suite }

        mode wait
        hard_deadline 60
        define_method(:in_host) { |&work| (wait == :fiber && !Fiber.scheduler) ? Heddle.run(&work) : work.call }

        class_eval(&block) if block
      end
      Object.const_set("#{name}#{wait.capitalize}Test", test)
    end
  end
end
