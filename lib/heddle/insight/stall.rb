# frozen_string_literal: true

require_relative "names"

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
    def initialize(seen)
      @seconds, @reason, @cpu, @gc, @waited = seen.values_at(:seconds, :reason, :cpu, :gc, :waited)
      @ended_at = Time.at(seen[:ended])
      names = Insight::Names
      @task = names.task(seen[:task], seen[:number]) if seen[:task]
      @thread = names.thread(seen[:thread])
      @culprit = names.native_thread(seen[:culprit]) if seen[:culprit]
      @waiters = seen[:waiters].map { |task, number, waited| [names.task(task, number), waited] }
      @backtrace = lines_of(seen[:place].to_a)
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

    # What a task told are lines already; what a signal found are path, line and label. A method in C has no path: it
    # gets its caller's, as in Ruby's own backtraces.
    def lines_of(frames)
      return frames.map { |line| Insight::Clean.clean(line) } if frames.first.is_a?(String)

      outer = nil
      frames.reverse.map { |path, line, label|
        outer = "#{Insight::Clean.clean(path)}:#{line}" if path
        "#{outer || "(in C)"}:in '#{Insight::Clean.clean(label)}'"
      }.reverse
    end
  end
end
