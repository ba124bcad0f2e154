# frozen_string_literal: true

module Heddle
  # Runs blocks in each child of fork. The only hook that Heddle puts into Process; code that only has to know whether
  # it runs in another process than before compares {Heddle.forks}.
  #
  # @api private
  module AfterFork
    @hooks = []

    class << self
      # @param before [#call, nil] called in the parent, right before the fork; its value goes to the block
      # @yield in the child, in the order in which the blocks were registered
      # @return [void]
      def register(before = nil, &child)
        @hooks += [[before, child]] # another thread may fork meanwhile
      end

      # Calls the block, which may fork.
      def watch
        forks = Heddle.forks
        hooks = @hooks.map { |before, child| [child, before&.call] }
        value = yield
        hooks.each { |child, state| child.call(state) } unless Heddle.forks == forks
        value
      end
    end

    # Every fork of Ruby code calls _fork, but for the one of Process.daemon.
    module Hook
      def _fork = AfterFork.watch { super }

      def daemon(...) = AfterFork.watch { super }

      Process.singleton_class.prepend(self)
    end
    private_constant :Hook
  end
end
