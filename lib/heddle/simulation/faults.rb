# frozen_string_literal: true

module Heddle
  class Simulation
    # What goes wrong in one run. Whether a fault happens depends on the seed and on the fault's own name alone: where
    # some are left out, the others stay.
    class Faults
      # One that happened.
      Fault = Struct.new(:name, :at) do
        # @return [String]
        def to_s = "#{name}, at #{format("%.6f", at)} s"
      end

      # @return [Array<Fault>]
      attr_reader :happened

      # @param only [Array<String>, nil] the names of those that may happen; nil for all
      def initialize(only = nil)
        @only = only&.to_h { |name| [name, true] }
        @happened = []
      end

      # @return [Boolean]
      def happens?(probability, name)
        return false unless probability.positive? && Core.draw(name) < probability
        return false if @only && !@only[name]

        @happened << Fault.new(name, Clock.seconds)
        true
      end

      # Of one subject, numbered.
      class Of
        # @return [Random] for decisions that are not faults
        attr_reader :random

        # @param faults [Faults]
        # @param subject [String]
        def initialize(faults, subject)
          @faults, @subject = faults, subject
          @random = Random.new((Core.draw(subject) * (1 << 53)).to_i)
          @number = 0
        end

        # Goes on to the next thing that may fail.
        def next = @number += 1

        # @return [Boolean]
        def happens?(probability, what)
          probability.positive? && @faults.happens?(probability, "#{@subject} #{@number} #{what}")
        end
      end
    end
    private_constant :Faults
  end
end
