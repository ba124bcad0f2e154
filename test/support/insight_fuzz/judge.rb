# frozen_string_literal: true

module InsightFuzz
  # Raised by tasks, blocks and other threads on purpose.
  class Disturbance < StandardError
  end

  # Tells errors that have a cause in this program from faults, which it prints.
  module Judge
    ENDS = [Disturbance, Heddle::Cancellation, Heddle::TaskCancelled, Heddle::DeadlineExceeded, Heddle::PoolTimeout,
      Heddle::TraceInProgress].freeze
    private_constant :ENDS

    module_function

    def fault(what, error = nil)
      what += " #{error.class}: #{error.message[0, 300]}\n  #{Array(error.backtrace).first(8).join("\n  ")}" if error
      $stderr.syswrite("FAULT in process #{Process.pid}: #{what}\n")
    end

    # Whether the error may leave a block. In trap handlers Ruby's locks raise ThreadError. The end of the program
    # kills threads of Heddle.offload, too, and lets none start.
    def expected?(error)
      return true if ENDS.any? { |kind| kind === error }
      return true if error.is_a?(ThreadError) && @in_handler && error.message.include?("trap context")
      return true if error.is_a?(ThreadError) && @ending && error.message.match?(/ended its thread|alloc thread/)

      (error.is_a?(Heddle::Error) && error.cause && expected?(error.cause)) || false
    end

    # The process is a child, made by a trap handler, which it has not left.
    def in_handler = @in_handler = true

    def ending = @ending = true

    # Tells of an error that must not leave the block. All errors leave it.
    def judging(what)
      yield
    rescue SystemExit, SignalException
      raise
    rescue Exception => error # rubocop:disable Lint/RescueException -- to judge it
      raise if expected?(error)

      fault(what, error)
      raise Disturbance, "after a fault"
    end

    # No error leaves it, but for one that ends the process.
    def contained(what, &block)
      judging(what, &block)
    rescue *ENDS, ThreadError, Heddle::Error
      nil
    end
  end
end
