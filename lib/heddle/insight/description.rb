# frozen_string_literal: true

require_relative "clean"

module Heddle
  module Insight
    # Describes what tasks wait for. An object for which thousands wait is described once.
    #
    # Calls no method of objects that are not Heddle's or Ruby's own: it might wait, or raise.
    #
    # @api private
    class Description
      def initialize
        @objects = {}.compare_by_identity
      end

      # @param klass [Class]
      # @return [Boolean] whether each object of the class has a description of its own
      def single?(klass) = SINGLE.any? { |known| klass <= known }

      # @param klass [Class]
      # @return [Hash{String => Object}] of any object of the class: `waits_for`, a text
      def of_class(klass) = {"waits_for" => "a #{Clean.clean(NAME.bind_call(klass) || "object")}"}

      # @param object [Object] that a task waits for
      # @return [Hash{String => Object}] the same; and `awaits`, the numbers of tasks that can end the wait
      def of(object) = @objects[object] ||= describe(object)

      NAME = Module.instance_method(:name)
      CLASS = ::Kernel.instance_method(:class)
      SINGLE = [Task, Run, Thread, Semaphore, ResourcePool, Thread::Mutex].freeze
      private_constant :NAME, :CLASS, :SINGLE

      private

      def describe(object)
        case object
        when Task then {"waits_for" => "the end of task #{named(object)}", "awaits" => [object.number]}
        when Run then {"waits_for" => "the end of the tasks of its run"}
        when Thread then {"waits_for" => "the end of thread #{thread(object)}"}
        when Semaphore, ResourcePool then resource(object)
        else of_class(CLASS.bind_call(object))
        end
      end

      def named(task)
        name = task.name
        name ? "#{task.number} #{Clean.quote(name)}" : task.number.to_s
      end

      def thread(thread) = Clean.clean(thread.name || thread.inspect)

      def resource(object)
        {"waits_for" => Clean.clean(object.inspect), "awaits" => object.holders}
      end
    end
  end
end
