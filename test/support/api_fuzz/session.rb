# frozen_string_literal: true

require "heddle"
require "stringio"
require_relative "../slowness"
require_relative "actor"
require_relative "round"
require_relative "watch"

module ApiFuzz
  # Runs round after round, and checks the invariants at their end.
  class Session
    include Heddle::Clock

    ROUND_SECONDS = 30
    # How many descriptors more than at the start may be open at the end: they belong to objects that the GC may not
    # have found yet. Ruby 3.1 itself never closes some descriptors whose IO#close a kill interrupts, in plain
    # threads, too.
    SPARE_DESCRIPTORS = (RUBY_VERSION < "3.2") ? 60 : 6

    def initialize(seed:, seconds:, round: nil, first: 0, only: nil)
      @seed = seed
      @seconds = seconds
      @round = round
      @first = first
      @only = only
      @faults = []
      @notes = Array.new(40)
      @noted = 0
      $stdout.sync = true
      backend = Heddle::Scheduler.new.backend
      puts "seed #{seed}, #{seconds} s, backend #{backend}, Ruby #{RUBY_VERSION}, process #{Process.pid}"
    end

    # @return [Boolean] whether all invariants held
    def run
      Thread.current.report_on_exception = false
      trap("USR2") { give_up("asked by a signal") }
      @watch = Watch.new(ROUND_SECONDS) { |message, wait| give_up(message, wait) }
      @watch.start
      serve
      rounds
      @watch.stop
      @server.kill.join
      @listener.close
      check_leaks
      verdict
    end

    # Keeps the last operations for the report.
    def note(line)
      @notes[@noted % @notes.size] = line
      @noted += 1
    end

    def fault(message)
      say "FAULT in round #{@number} of seed #{@seed}: #{message}"
      say "last operations:", *notes if @faults.empty?
      @faults << message
    end

    private

    def rounds
      start = now
      @number = @round || @first
      until now - start > @seconds
        puts "round #{@number}" if ENV["VERBOSE"]
        round = Round.new(self, "#{@seed}/#{@number}", @watch, @listener.local_address.ip_port, @only)
        began = now
        @watch.round(@number) { round.run }
        puts "round #{@number} took #{(now - began).round(2)} s" if ENV["VERBOSE"]
        @rounds = (@rounds || 0) + 1
        measure if @rounds == 3
        break if @faults.any?

        @number += 1 unless @round
      end
    end

    # After a warm-up.
    def measure
      settle
      @descriptors = descriptors
    end

    # Threads of Heddle.offload and of deadlines end one or two seconds after their last use.
    def settle
      deadline = now + Slowness.stretch(8)
      sleep 0.05 until strangers.empty? || now > deadline
      3.times { GC.start }
    end

    # Timeout's own thread never ends.
    def strangers
      others = Thread.list - [Thread.current, @server, *@watch.threads]
      others.reject { |thread| thread.name&.start_with?("Timeout") }
    end

    def descriptors = Dir.children("/proc/self/fd").size

    def check_leaks
      settle
      strangers.each { |thread| fault("a thread is left: #{places(thread, thread.backtrace)}") }
      left = descriptors - (@descriptors || descriptors)
      return if left <= SPARE_DESCRIPTORS

      fault("#{left} descriptors are left: #{kinds_of_descriptors}")
    end

    def kinds_of_descriptors
      names = Dir.children("/proc/self/fd").map do |number|
        File.readlink("/proc/self/fd/#{number}")
      rescue Errno::ENOENT
        "closed" # it has read the folder
      end
      names.map { |name| name[/\A[a-z_]+/] || name }.tally
    end

    def verdict
      puts "#{@rounds} rounds, #{@noted} operations"
      puts @faults.empty? ? "passed" : "failed: SEED=#{@seed} ROUND=#{@number}"
      @faults.empty?
    end

    # A server that echoes a line to each client.
    def serve
      @listener = TCPServer.new("127.0.0.1", 0)
      @server = Thread.new do
        loop do
          peer = @listener.accept
          begin
            peer.write(peer.gets)
          rescue SystemCallError, TypeError
            nil
          ensure
            peer.close
          end
        end
      end
    end

    # Runs on the watch's thread, or as a signal handler. Prints the state of everything and ends the process.
    def give_up(message, wait = nil)
      say "FAULT in round #{@number} of seed #{@seed}: #{message}"
      say places(wait.actor, wait.fiber.backtrace) if wait
      say "waits:", *@watch.waits
      say "last operations:", *notes
      ObjectSpace.each_object(Heddle::Scheduler) { |scheduler| say dump(scheduler) unless scheduler.closed? }
      Thread.list.each { |thread| say places(thread, thread.backtrace) }
      ObjectSpace.each_object(Fiber) { |fiber| say places(fiber, fiber.backtrace) if fiber.alive? }
    ensure
      exit!(1)
    end

    def notes = Array.new(@notes.size) { |index| @notes[(@noted + index) % @notes.size] }.compact

    def places(what, backtrace) = [what.is_a?(Actor) ? what.to_s : what.inspect, *backtrace&.first(20)].join("\n    ")

    def dump(scheduler)
      "#{Heddle::Dump.text(scheduler)}\n#{scheduler.statistics}"
    rescue => error
      "#{scheduler.inspect}: #{error.message}"
    end

    # Writes past any scheduler, and also from a signal handler.
    def say(*lines) = $stdout.syswrite(lines.join("\n") << "\n")
  end
end
