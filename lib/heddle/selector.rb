# frozen_string_literal: true

begin
  require "io/event"
rescue LoadError => error
  raise unless error.path == "io/event"

  raise LoadError, "heddle/selector needs the gem io-event, 1.11 or newer: add it, or async, to the Gemfile", cause: nil
end
require_relative "scheduler"

module Heddle
  class Selector
    private

    # A thread has no fiber scheduler, so it waits itself; the calling fiber waits for the thread. Process::Status.wait
    # is the only wait for a group of processes.
    def wait_in_thread(pid, flags)
      thread = Thread.new do # without the caller's mask: it must end when the caller does
        Thread.handle_interrupt(Object => :immediate) { ::Process::Status.wait(pid, flags) }
      end
      thread.report_on_exception = false
      thread.value
    ensure
      thread&.kill
    end
  end
end

# io-event looks here for the name in IO_EVENT_SELECTOR.
IO::Event::Selector.const_set(:Heddle, Heddle::Selector)
