# frozen_string_literal: true

require_relative "stall"

module Heddle
  # A watch of {Heddle.watch_stalls}.
  #
  # All watches share a native thread, which looks at the loops, and a Ruby thread, "heddle stalls", which calls the
  # blocks. Neither a Mutex nor anything else that a trap handler must not use stands between the two.
  class StallWatch
    # Seconds in which a place is reported once.
    PAUSE = 1.0
    private_constant :PAUSE

    @watches = [] # changed by single methods in C, which no other thread interrupts
    @passes = 0
    @told = 0 # of those that were lost

    class << self
      private :limit=, :watch_loop, :wait, :wake, :take, :lost

      # @api private
      def add(watch)
        @watches.push(watch)
        adjust
        report_in_thread
        Scheduler.open.each { |scheduler, thread| watch_loop(scheduler, thread.native_thread_id.to_i) }
        added = true
      ensure
        unless added
          @watches.delete(watch)
          adjust
        end
      end

      # @api private
      def remove(watch)
        adjust if @watches.include?(watch)
      end

      # Waits until all stalls that ended before are reported.
      #
      # @api private
      # @return [void]
      def settle(seconds)
        passes = @passes + 2
        limit = Clock.now + seconds
        while @reporter&.alive? && @reporter != Thread.current && @passes < passes && Clock.now < limit
          wake
          sleep(0.002)
        end
      end

      # Stalls at the end of a program are reported, too. Then nothing looks at stacks any more.
      #
      # @api private
      def program_ends
        return if @watches.empty?

        settle(1.0)
        self.limit = nil
      end

      # @api private
      def forked
        @reporter = nil
        @told = 0
        return if @watches.empty?

        @watches.each(&:forked)
        adjust
        report_in_thread
      end

      private

      # Two threads may do so at once: whoever comes last finds what the other has changed.
      def adjust
        loop do
          wanted = least
          self.limit = wanted
          break if wanted == least
        end
      end

      def least = @watches.filter_map { |watch| watch.limit unless watch.stopped? }.min

      def report_in_thread
        return if @reporter&.alive?

        @reporter = Thread.new { Heddle.background_thread { report } }
        @reporter.name = "heddle stalls"
        @reporter.thread_variable_set(:heddle_wakes_nobody, true)
        @reporter.report_on_exception = true
      end

      def report
        loop do
          wait(@watches.filter_map(&:due_in).min)
          watches = @watches.dup
          while (seen = take)
            stall = stall_of(seen) and watches.each { |watch| watch.report(stall) }
          end
          tell_lost
          watches.each(&:report_due)
          @passes += 1
          watches.each { |watch| @watches.delete(watch) if watch.stopped? && watch.settled? }
        end
      end

      # What takes the reports was too slow for them.
      def tell_lost
        told, @told = @told, lost
        warn "heddle: #{@told - told} stalls are not reported: more came than reports were taken" if @told > told
      end

      def stall_of(seen)
        Stall.new(seen)
      rescue => error
        warn "heddle: cannot report a stall: #{error.class}: #{error.message}"
      end
    end

    # @return [Float] seconds
    attr_reader :limit

    # @api private
    def initialize(limit, target)
      @limit = limit
      @target = target
      @places = {}
      @dead_passes = 0
    end

    # Ends the watch. Stalls that have ended before are still reported. A trap handler may call this, the block, and any
    # thread; a second call does nothing.
    #
    # @return [nil]
    def stop
      @stopped = true
      self.class.remove(self)
      nil
    end

    # @return [Boolean] whether {#stop} was called
    def stopped? = @stopped ? true : false

    # Calls the block, and ends the watch afterwards, however the block ends. Returns when the stalls within the block
    # were reported, but waits no longer than a second for that.
    #
    # @example
    #   Heddle.watch_stalls(0.05).during { Heddle.run { work } }
    # @return [Object] the block's value
    def during
      yield
    ensure
      stop
      self.class.settle(1.0)
    end

    # @api private
    def report(stall)
      return if stall.seconds < limit

      held = @places[stall.place]
      return hold(held, stall) if held

      @places[stall.place] = {from: Clock.now, count: 0, longest: nil}
      give(stall.standing_for(1))
    end

    # @api private
    def report_due
      @dead_passes += 1 if stopped?
      now = Clock.now
      @places.each do |place, held|
        next unless now - held[:from] >= PAUSE || stopped?

        give(held[:longest].standing_for(held[:count])) if held[:longest]
        held[:longest] ? @places[place] = {from: now, count: 0, longest: nil} : @places.delete(place)
      end
    end

    # @api private
    # @return [Float, nil] seconds until {#report_due} may have something to do
    def due_in
      return 0.0 if stopped?

      first = @places.each_value.map { |held| held[:from] }.min
      first && [first + PAUSE - Clock.now, 0.0].max
    end

    # @api private
    def settled? = @dead_passes > 1

    # The parent's thread may have been iterating over the Hash, which takes no new key in the child then.
    #
    # @api private
    def forked = @places = {}

    private

    def hold(held, stall)
      held[:count] += 1
      held[:longest] = stall if !held[:longest] || stall.seconds > held[:longest].seconds
    end

    def give(stall)
      @target.call(stall)
    rescue SystemExit, SignalException
      raise
    rescue Exception => error # rubocop:disable Lint/RescueException -- of the caller's code, and the watch goes on
      warn "heddle: the report of a stall failed: #{error.class}: #{error.message} (#{error.backtrace&.first})"
    end
  end
end

at_exit { Heddle::StallWatch.program_ends }
