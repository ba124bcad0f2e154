# frozen_string_literal: true

require_relative "names"

module Heddle
  module Insight
    # Describes what tasks wait for. An object for which thousands wait is described once.
    #
    # Calls no method of objects that are not Heddle's or Ruby's own: it might wait, or raise. See {Names}.
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
      def of_class(klass) = {"waits_for" => "a #{Names.class_name(klass)}"}

      # @param object [Object] that a task waits for
      # @return [Hash{String => Object}] the same; and `awaits`, the numbers of tasks that can end the wait
      def of(object) = @objects[object] ||= describe(object)

      SINGLE = [Task, Run, Thread, Semaphore, ResourcePool, Thread::Mutex].freeze
      private_constant :SINGLE

      private

      def describe(object)
        case object
        when Task then {"waits_for" => "the end of #{Names.task(object)}", "awaits" => [object.number]}
        when Run then {"waits_for" => "the end of the tasks of its run"}
        when Thread then {"waits_for" => "the end of #{Names.thread(object)}"}
        when Semaphore, ResourcePool then {"waits_for" => Names.pool(object), "awaits" => object.holders}
        else {"waits_for" => "a #{Names.class_of(object)}"}
        end
      end
    end
  end
end
