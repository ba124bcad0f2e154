# frozen_string_literal: true

module ApiFuzz
  # Knows every wait in progress, and what would end it. A wait that lasts two seconds longer than its cause has lost
  # its wake-up. The seconds are counted in polls, which come late when the machine is busy.
  class Watch
    include Heddle::Clock

    SECONDS = 2.0
    LOOK = 0.1

    Wait = Struct.new(:what, :actor, :thread, :fiber, :since, :cause, :looks)

    # @param limit [Numeric] seconds that a round may take
    # @yieldparam message [String] the fault; yielded once
    def initialize(limit, &report)
      @limit = limit
      @report = report
      @waits = {}.compare_by_identity
      @round_began = nil
      @looks = 0
    end

    # Records that the current fiber waits inside the block until +cause+ is true.
    def wait(what, actor, cause)
      wait = Wait.new(what, actor, Thread.current, Fiber.current, now, cause, 0)
      @waits[wait] = true
      yield
    ensure
      @waits.delete(wait)
    end

    def round(number)
      @number = number
      @looks = 0
      @round_began = now
      yield
    ensure
      @round_began = nil
    end

    # Call it once, before any scheduler exists.
    def start
      @thread = Thread.new do
        Thread.current.name = "watch"
        until @done
          look
          sleep LOOK
        end
      end
    end

    def stop
      @done = true
      @thread.join
    end

    # The watch's own thread, which nothing else has to end.
    def threads = [@thread]

    # All waits, each with what it waits for.
    def waits
      @waits.keys.map do |wait|
        reason = came?(wait) ? "its cause has come" : "rightly"
        format("%s waits for %s, for %.2f s (%s)", wait.actor, wait.what, now - wait.since, reason)
      end
    end

    private

    def look
      late = @waits.keys.find do |wait|
        wait.looks = came?(wait) ? wait.looks + 1 : 0
        wait.looks * LOOK >= SECONDS
      end
      return tell("#{late.actor} still waits for #{late.what}, #{SECONDS} s after its cause has come", late) if late
      return unless @round_began

      tell("round #{@number} did not end within #{@limit} s") if (@looks += 1) * LOOK >= @limit
    end

    def tell(message, wait = nil)
      return if @told

      @told = true
      @report.call(message, wait)
    end

    def came?(wait)
      wait.cause.call
    rescue
      false # the object that it asks is closed meanwhile
    end
  end
end
