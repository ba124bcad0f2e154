# frozen_string_literal: true

require_relative "../../lib/heddle/core/clock"
require_relative "slowness"

# How long the threads of a process, and of the processes that it has started, were ready to run while other threads had
# the processors: the part of a measured time that comes from the machine's load, and not from the code under test. A
# thread that waits for the GVL, for a lock, for a peer or for a time is not ready to run. Times are in seconds.
module SchedulingDelay
  # @param pid [Integer, String]
  # @return [Hash{String => Float}] the delay so far of each thread that runs; empty where the system has no count
  def self.by_thread(pid = "self")
    # A blocking fiber reads past any scheduler: the reads must not switch tasks.
    Fiber.new(blocking: true) { {}.tap { |delays| add(pid, delays) } }.resume
  end

  # @param before [Hash] an earlier result of by_thread. What a thread waited that has ended since is not counted.
  def self.since(before, pid = "self")
    by_thread(pid).sum(0.0) { |thread, delay| [delay - before.fetch(thread, 0.0), 0.0].max }
  end

  def self.add(pid, delays)
    Dir["/proc/#{pid}/task/*"].each do |thread|
      delays[File.basename(thread)] = File.read("#{thread}/schedstat").split[1].to_i / 1e9
      File.read("#{thread}/children").split.each { |child| add(child, delays) }
    rescue SystemCallError
      next # the thread has ended
    end
  end
  private_class_method :add

  # A limit for what another process does, without its scheduling delay, stretched by the machine's slowness.
  class Limit
    include Heddle::Clock

    def initialize(seconds, pid)
      @pid = pid
      @before = SchedulingDelay.by_thread(pid)
      @ends = now + Slowness.stretch(seconds)
    end

    def passed? = now > @ends && now > @ends + SchedulingDelay.since(@before, @pid)
  end
end
