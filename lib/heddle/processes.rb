# frozen_string_literal: true

require_relative "run"
require_relative "fiber_pool"
require_relative "items"
require_relative "processes/frames"
require_relative "processes/transfer"
require_relative "processes/worker"
require_relative "processes/child"
require_relative "processes/dealer"
require_relative "processes/stream"

module Heddle
  # Spreads work over several processes, each of which runs a {FiberPool}.
  #
  # Every call of {#map}, {#each} or the like forks workers of its own, which so know all that the block refers to, and
  # ends them before it returns. Items are dealt out one by one to the worker that has the least to do; no worker holds
  # more of them than it has fibers. Items, values and errors travel by Marshal.
  #
  # Works inside {Heddle.run}, where only the calling task waits, and anywhere else. A {Heddle.deadline} around a call
  # bounds it. The error of an item comes with the backtrace that it had in its worker; it ends the other workers (SIGTERM,
  # so that their `ensure` blocks run, and SIGKILL after {GRACE} seconds), as does everything else that ends a call early:
  # a `break`, a cancel, a signal to this process. Workers whose parent dies end by themselves.
  #
  # A block that writes to its worker's connection, whose file descriptor it has no business with, ends the call with {WorkerLost}. A
  # worker that stands still (an endless computation, SIGSTOP) is waited for: a {Heddle.deadline} ends that.
  #
  # What holds for every fork holds here: of other threads nothing is left in a worker, and a connection that was open before
  # must not be used on both sides. A worker runs no at_exit handlers of this process; it ignores SIGINT, since Ctrl-C
  # reaches all processes of a terminal and it is this one's to say what follows; and it obeys SIGTERM, whatever the handlers
  # of this process.
  #
  # @example
  #   bodies = Heddle::Processes.new(2, fibers: 500).map(urls) { |url| Net::HTTP.get(URI(url)) }
  class Processes
    # Seconds that a worker which has to end gets for its `ensure` blocks.
    GRACE = 5.0

    # @return [Integer] how many workers there are at most
    attr_reader :count
    # @return [Integer] how many items a worker has at once
    attr_reader :fibers

    # @param count [Integer] how many workers there are at most
    # @param fibers [Integer] how many items each has at once
    def initialize(count, fibers: 50)
      @count = whole("processes", count)
      @fibers = whole("fibers", fibers)
    end

    # Calls the block with each item, in the workers.
    #
    # @param items [#each] may wait, or be endless where something else ends it; what it yields as several values
    #   (`each_with_index`) is one item, an Array of them
    # @return [Array] the blocks' values, in the order of the items
    # @raise [TypeError] for items that have no `each`
    # @raise [WorkerLost] when a worker ended, or sent what is no answer; says which items it had
    # @raise [NotMarshalable] when an item, a value or an error cannot be sent from one process to another, or takes more
    #   than a gigabyte
    # @raise [Exception] the first error of an item
    def map(items, &block)
      raise ArgumentError, "Heddle::Processes#map needs a block: it is called with each item" unless block

      Items.check(items)
      values = []
      Dealer.new(self, block, keep: true).run(items) { |index, payload| values[index] = Transfer.load_value(payload, index) }
      values
    end

    # As {#map}, without keeping the values, which so need not be fit for Marshal.
    #
    # @param items [#each] may be endless
    # @return [self]
    def each(items, &block)
      raise ArgumentError, "Heddle::Processes#each needs a block: it is called with each item" unless block

      Items.check(items)
      Dealer.new(self, block, keep: false).run(items)
      self
    end

    # As {#map}, for more values than there is memory for: they come one by one and in order, to the block of the Stream's
    # `each`. No item is taken while `ahead` others are on their way, or while {Stream::BYTES} of values wait for one
    # before them. The next value is looked for when the next item has been taken.
    #
    # @example
    #   Heddle::Processes.new(2).stream(lines) { |line| parse(line) }.each { |record| store(record) }
    # @param items [#each] may be endless
    # @param ahead [Integer] how many items may be taken whose values have not been handed over
    # @return [Stream] an Enumerable; the work begins, and ends, with its `each`
    def stream(items, ahead: 2 * @count * @fibers, &block)
      raise ArgumentError, "Heddle::Processes#stream needs a block: it is called with each item" unless block

      Items.check(items)
      Stream.new(self, items, block, whole("ahead", ahead))
    end

    # @return [String]
    def inspect = "#<#{self.class} #{@count} of #{@fibers} fibers>"

    private

    def whole(what, value)
      raise TypeError, "#{what} is a whole number, not #{value.inspect}" unless value.is_a?(Integer)
      raise ArgumentError, "#{what} is 1 or more, not #{value}" if value < 1

      value
    end

    private_constant :Frames, :Transfer, :Worker, :Child, :Dealer
  end
end
