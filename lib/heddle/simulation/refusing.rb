# frozen_string_literal: true

module Heddle
  class Simulation
    # Methods that a program may not call in a simulation.
    module Refusing
      # @param visibility [Symbol] of the methods
      # @yieldparam name [Symbol] of a method that is called in a simulation; the block raises
      # @return [Module] to be prepended
      def self.module_of(names, visibility: :public, &refuse)
        Module.new do
          names.each do |name|
            define_method(name) do |*arguments, **options, &block|
              refuse.call(name) if Simulation.world
              super(*arguments, **options, &block)
            end
          end
          send(visibility, *names)
        end
      end
    end
    private_constant :Refusing
  end
end
