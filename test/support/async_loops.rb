# frozen_string_literal: true

require "heddle/async"

# Runs a block as a task of Async's in three ways. What Async defines must be the same in all of them.
#
# own::  on Async's own loop, with io-event's selector
# top::  by Async { } alone, which heddle/async gives a loop of Heddle's
# run::  inside Heddle.run
module AsyncLoops
  ALL = %i[own top run].freeze
  HEDDLE = %i[top run].freeze

  module_function

  # The value of the block's task.
  def run(loop, &block)
    case loop
    when :own then own(IO::Event::Selector.new(Fiber.current), &block)
    when :top then Sync(&block)
    when :run then Heddle.run { Sync(&block) }
    end
  end

  # Reads from a pipe that stays empty. Its writer is kept: a collected one would end the read.
  def read_nothing = IO.pipe.then { |reader, _writer| reader.read(1) }

  # As Kernel#Sync of a program without heddle/async.
  def own(selector, &block)
    reactor = Async::Reactor.new(selector: selector)
    reactor.run(&block).wait
  ensure
    Fiber.set_scheduler(nil)
  end
end
