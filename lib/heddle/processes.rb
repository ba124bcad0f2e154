# frozen_string_literal: true

require_relative "run"
require_relative "fiber_pool"
require_relative "core/items"
require_relative "processes/list"
require_relative "processes/frames"
require_relative "processes/transfer"
require_relative "processes/worker"
require_relative "processes/child"
require_relative "processes/dispatcher"
require_relative "processes/stream"

module Heddle
  # Spreads work over several processes, each of which runs a {FiberPool}.
  #
  # Each call of {#map}, {#each} or {#stream} forks its own workers, so that they have all objects that the block refers
  # to, and ends them before it returns. Each item goes to the worker that has the fewest; no worker holds more items
  # than it has fibers.
  #
  # The elements of an Array are among those objects, as they are at the fork, and are not sent: they may be of any
  # class, and where two items refer to one object, so do their copies in a worker. The Integers of a Range are not sent
  # either. All other items, elements that are appended to the Array during the call, values and errors travel by
  # Marshal, each on its own.
  #
  # Works inside {Heddle.run}, where only the calling task waits, and anywhere else. A {Heddle.deadline} around a call
  # bounds the call. An item's error has the backtrace from its worker. An error ends the other workers (SIGTERM, so
  # that their `ensure` blocks run, and SIGKILL after {GRACE} seconds). So does everything else that ends a call early:
  # a `break`, a cancel, a signal to this process. Workers whose parent dies end on their own.
  #
  # If a block writes to the file descriptor of its worker's connection, the call raises {WorkerLost}. The call waits
  # for a worker that stands still (an endless computation, SIGSTOP): bound it by a {Heddle.deadline}.
  #
  # The rules of every fork apply: a worker has none of the other threads, and parent and worker must not both use a
  # connection that was open before. A worker runs no at_exit handlers of this process. It ignores SIGINT, since Ctrl-C
  # reaches all processes of a terminal and the parent decides what follows. It obeys SIGTERM, whatever handlers this
  # process has.
  #
  # @example
  #   bodies = Heddle::Processes.new(2, fibers: 500).map(urls) { |url| Net::HTTP.get(URI(url)) }
  class Processes
    # Seconds that a worker has for its `ensure` blocks before SIGKILL.
    GRACE = 5.0

    # @return [Integer] the most workers
    attr_reader :count
    # @return [Integer] the most items that a worker has at once
    attr_reader :fibers

    # @param count [Integer] the most workers
    # @param fibers [Integer] the most items that a worker has at once
    def initialize(count, fibers: 50)
      @count = whole("processes", count)
      @fibers = whole("fibers", fibers)
    end

    # Calls the block with each item, in the workers.
    #
    # @param items [#each] may wait, and may be endless if a deadline or an error ends the call. If `each` yields
    #   several values at once (`each_with_index`), their Array is one item
    # @param errors [Symbol] `:return` makes an item's StandardError its value, and the other items go on
    # @return [Array] the blocks' values, in the order of the items
    # @raise [TypeError] for items without a method `each`
    # @raise [WorkerLost] when a worker ended, or sent a malformed answer; the message names its items
    # @raise [NotMarshalable] when a value, an error, or an item that is not an Array's, cannot be sent from one process
    #   to another, or takes more than a gigabyte
    # @raise [Exception] the first error of an item
    def map(items, errors: :raise, &block)
      raise ArgumentError, "Heddle::Processes#map needs a block to call with each item" unless block

      Items.check(items)
      values = []
      keep_errors = Items.return_errors?(errors)
      Dispatcher.new(self, block, keep: true, keep_errors: keep_errors).run(items) do |index, content, error|
        values[index] = error || Transfer.load_value(content, index)
      end
      values
    end

    # Like {#map}, but drops the values: Marshal need not be able to dump them.
    #
    # @param items [#each] may be endless
    # @return [self]
    def each(items, &block)
      raise ArgumentError, "Heddle::Processes#each needs a block to call with each item" unless block

      Items.check(items)
      Dispatcher.new(self, block, keep: false).run(items)
      self
    end

    # Like {#map}, for more values than fit in memory: the Stream's `each` yields them one by one, in order. No item is
    # taken while `ahead` items have no value yet, or while {Stream::BYTES} of values wait for an earlier value. Values
    # are yielded only after the next item was taken.
    #
    # @example
    #   Heddle::Processes.new(2).stream(lines) { |line| parse(line) }.each { |record| store(record) }
    # @param items [#each] may be endless
    # @param ahead [Integer] the most items taken whose values have not been yielded
    # @return [Stream] an Enumerable; the work begins and ends with its `each`
    def stream(items, ahead: 2 * @count * @fibers, &block)
      raise ArgumentError, "Heddle::Processes#stream needs a block to call with each item" unless block

      Items.check(items)
      Stream.new(self, items, block, whole("ahead", ahead))
    end

    # @return [String]
    def inspect = "#<#{self.class} #{@count} of #{@fibers} fibers>"

    private

    def whole(what, value)
      raise TypeError, "#{what} must be an Integer, not #{value.inspect}" unless value.is_a?(Integer)
      raise ArgumentError, "#{what} must be at least 1, not #{value}" if value < 1

      value
    end

    private_constant :List, :Frames, :Transfer, :Worker, :Child, :Dispatcher
  end
end
