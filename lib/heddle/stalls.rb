# frozen_string_literal: true

require_relative "scheduler"

module Heddle
  # A time for which a loop did not get to its other fibers: what {Heddle.watch_stalls} reports.
  class Stall
    # What each reason means, in words.
    REASONS = {
      ruby: "Ruby code computed", native: "C code held the GVL", gc: "GC ran", gvl: "another thread had the GVL",
      kernel: "the kernel did not run the thread", blocked: "a system call or a lock held the thread",
      deadline: "a thread computed beyond its deadline"
    }.freeze

    # @return [Float] how long it took; for +:deadline+, how long after the deadline the thread still computed. It may
    #   have been some milliseconds longer
    attr_reader :seconds
    # @return [Symbol] +:ruby+, Ruby code computed; +:native+, code in C held the GVL; +:gc+, GC ran; +:gvl+, another
    #   thread had the GVL; +:kernel+, the kernel did not run the thread: there was no processor, or SIGSTOP came;
    #   +:blocked+, a system call or a lock held the thread; +:deadline+, a plain thread computed beyond its
    #   {Heddle.deadline}
    attr_reader :reason
    # @return [String, nil] number and name of the task that ran; nil for code outside of any task, and where none ran
    attr_reader :task
    # @return [String] the loop's thread; for +:deadline+, the thread that computed
    attr_reader :thread
    # @return [String, nil] for +:gvl+, the thread that had the GVL
    attr_reader :culprit
    # @return [Array<String>] the lines of the task, or of {#culprit}, innermost first, at most 40; empty if no code of
    #   this process is to blame
    attr_reader :backtrace
    # @return [Float, nil] seconds of CPU time that the thread used, at least; nil if unknown
    attr_reader :cpu
    # @return [Float] seconds of CPU time that GC took meanwhile, in any thread
    attr_reader :gc
    # @return [Integer] how many fibers waited meanwhile, although nothing but the stall kept them
    attr_reader :waited
    # @return [Array<Array(String, Float)>] those that waited longest, at most eight: the task, and for how many seconds
    attr_reader :waiters
    # @return [Time] its end
    attr_reader :ended_at
    # @return [Integer] how many stalls at this place this one stands for: since the last report the longest
    attr_reader :count

    # @api private
    def initialize(seen, lines)
      @seconds, @reason, @cpu, @gc, @waited = seen.values_at(:seconds, :reason, :cpu, :gc, :waited)
      @ended_at = Time.at(seen[:ended])
      names = Insight::Names
      @task = names.task(seen[:task], seen[:number]) if seen[:task]
      @thread = names.thread(seen[:thread])
      @culprit = names.native_thread(seen[:culprit]) if seen[:culprit]
      @waiters = seen[:waiters].map { |task, number, waited| [names.task(task, number), waited] }
      @backtrace = lines
      @count = 1
    end

    # @api private
    def standing_for(count) = dup.tap { |stall| stall.instance_variable_set(:@count, count) }.freeze

    # @api private
    # @return [Object] equal for stalls at the same place: in one method, called from the same lines
    def place = [reason, backtrace.first&.sub(/:\d+:/, ":"), backtrace[1, 2]]

    # @return [String] the report, in several lines
    def to_s
      lines = ["#{format("%.3f", seconds)} s: #{REASONS.fetch(reason)}, #{where}"]
      lines[0] << format(" (%.3f s of CPU time, %.3f s of GC)", cpu, gc) if cpu
      lines[0] << ", one of #{count}" if count > 1
      lines.concat(backtrace.map { |line| "    from #{line}" })
      if waited > 0
        longest = waiters.map { |name, length| format("%s %.3f s", name, length) }.join(", ")
        lines << "    #{waited} fiber#{"s" unless waited == 1} waited: #{longest}"
      end
      lines.join("\n")
    end

    # @return [String]
    def inspect = "#<#{self.class} #{format("%.3f", seconds)} s #{reason} #{task || thread}>"

    private

    def where
      return thread if reason == :deadline

      "#{task || "code outside of tasks"} on #{thread}#{" (#{culprit} had it)" if culprit}"
    end
  end

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
      private :limit=, :watch_loop, :wait, :take, :lost

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
        @reporter&.wakeup if @reporter&.alive?
        while @reporter&.alive? && @reporter != Thread.current && @passes < passes && Clock.now < limit
          @reporter.wakeup
          sleep(0.002)
        end
      rescue ThreadError
        nil # the thread has just ended
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
            stall = read(seen) and watches.each { |watch| watch.report(stall) }
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

      def read(seen)
        Stall.new(seen, Lines.of(seen[:place]))
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

    # The lines of a backtrace, from frames.
    module Lines
      class << self
        # @param place [Array<Array(String, Integer, String)>, Array<String>, nil] a method in C has no path: it gets
        #   its caller's, as in Ruby's own backtraces
        # @return [Array<String>]
        def of(place)
          place = place.to_a.dup
          return place.map { |line| clean(line) } if place.first.is_a?(String)

          outer = nil
          place.reverse.map { |path, line, label|
            outer = "#{clean(path)}:#{line}" if path
            "#{outer || "(in C)"}:in '#{clean(label)}'"
          }.reverse
        end

        private

        def clean(text) = Insight::Clean.clean(text)
      end
    end
    private_constant :Lines
  end

  class << self
    # Reports when a loop did not get to its other fibers for so long: how long it took, in which task, where in the
    # code, and why. All loops of this process are watched, those that start later, too; and plain threads that still
    # compute so long after their {Heddle.deadline}. A child of fork has the same watches.
    #
    # The stall is seen while it lasts, also where code in C holds the GVL, and is reported once the loop goes on. Each
    # place is reported once a second at most: {Stall#count} tells how often it was seen.
    #
    # On Linux the thread that stalls gets a signal, so that it looks at its own stack: URG, or WINCH where the program
    # has a handler for URG. Without either, and on other systems, fewer stalls have lines. Neither signal may get a
    # handler while a watch runs: from then on it is no longer sent. A system call of a library in C may fail with
    # EINTR, as it may by the signal with which Ruby itself interrupts threads.
    #
    # HEDDLE_WATCH_STALLS=0.05 in the environment does the same when Heddle is loaded, with reports to $stderr.
    #
    # @example
    #   Heddle.watch_stalls(0.05) { |stall| logger.warn(stall.to_s) }
    # @param limit [Numeric] seconds, at least 0.01. No shorter stall is reported; one that is longer by less than a
    #   tick of the kernel's clock (mostly 4 ms) may be missed
    # @param to [#call, Logger, IO, ActiveSupport::Notifications] what gets the reports, without a block: a callable;
    #   a logger, as warnings; an IO; ActiveSupport::Notifications, as events "stall.heddle" with the payload +:stall+.
    #   $stderr by default
    # @yieldparam stall [Stall] on a thread of the watch, not on the loop's. What the block raises is printed
    # @return [StallWatch]
    # @raise [ArgumentError] for a limit that is no such time, or with +to+ and a block
    # @raise [ThreadError] if no thread can be started
    def watch_stalls(limit = 0.05, to: nil, &block)
      raise ArgumentError, "pass either a block or to:, not both" if to && block

      watch = StallWatch.new(StallTarget.limit(limit), block || StallTarget.of(to || $stderr))
      StallWatch.add(watch)
      watch
    end
  end

  # Where reports go.
  module StallTarget
    LEAST = 0.01

    class << self
      # @return [Float] the limit, in seconds
      # @raise [ArgumentError]
      def limit(seconds)
        unless seconds.is_a?(Numeric) && seconds.real? && seconds >= LEAST && seconds < Float::INFINITY
          raise ArgumentError, "the limit must be at least #{LEAST} seconds, got #{seconds.inspect}: the kernel's " \
            "clock that the loop reads has ticks of some milliseconds"
        end

        seconds.to_f
      end

      # @return [#call] gets each {Stall}
      # @raise [ArgumentError]
      def of(target)
        return target if target.respond_to?(:call)
        return notifications if target.respond_to?(:publish_event)
        return ->(stall) { target.warn("heddle: a stall of #{stall}") } if target.respond_to?(:warn)
        return ->(stall) { target.write("heddle: a stall of #{stall}\n") } if target.respond_to?(:write)

        raise ArgumentError, "cannot report stalls to #{target.class}: pass something callable, a Logger, an IO or " \
          "ActiveSupport::Notifications"
      end

      private

      def notifications
        require_relative "notifications/event"
        ->(stall) { Notifications::Event.publish("stall.heddle", stall.ended_at.to_f, stall.seconds, stall: stall) }
      end
    end
  end
  private_constant :StallTarget

  AfterFork.register { StallWatch.forked }
end

at_exit { Heddle::StallWatch.program_ends }

if (limit = ENV["HEDDLE_WATCH_STALLS"])
  begin
    Heddle.watch_stalls(Float(limit))
  rescue ArgumentError, ThreadError => error # as with HEDDLE_INSIGHT, the program starts
    warn "heddle: no stall is watched for, with HEDDLE_WATCH_STALLS=#{limit}: #{error.message}"
  end
end
