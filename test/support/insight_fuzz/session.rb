# frozen_string_literal: true

require "heddle"
require "heddle/insight/folder"
require "json"
require "tmpdir"
require_relative "../api_fuzz/supervisor"
require_relative "peers"
require_relative "plan"

module InsightFuzz
  # Runs one seed after another, each in a process of its own, asks that process meanwhile, and checks what it left.
  class Session
    PATIENCE = 60 # seconds
    ORPHANS = 40 # seconds
    FAULT = /FAULT|Assertion|heddle:|(NoMethod|Type|Argument|IO|Name|Runtime|Index|Key|Frozen)Error|Errno/
    # A child that a handler makes in the middle of Heddle.insight cannot listen, and says so.
    ON_PURPOSE = /Disturbance|trap context|this handler interrupts another call of Heddle\.insight/
    private_constant :PATIENCE, :ORPHANS, :FAULT, :ON_PURPOSE

    # @param program [String] starts a {Subject}
    def initialize(program, seed:, runs:, seconds:)
      @program = program
      @seeds = seed...(seed + runs)
      @seconds = seconds
      @answers = @traces = 0
    end

    # @return [Boolean] whether all invariants held
    def run
      failed = @seeds.reject { |seed| Dir.mktmpdir("heddle-fuzz") { |folder| held?(seed, folder) } }
      puts "#{@seeds.size} runs from seed #{@seeds.begin} on, #{@answers} answers, #{@traces} traces"
      puts failed.empty? ? "passed" : "failed: #{failed.map { |seed| "SEED=#{seed} RUNS=1" }.join(", ")}"
      failed.empty?
    end

    private

    def held?(seed, folder)
      plan = Plan.new(seed)
      lines = []
      peers = Peers.new(folder, seed)
      ended = supervisor(plan, seed, folder).run { |line| lines << line }
      peers.stop
      faults = lines.grep(FAULT).grep_v(ON_PURPOSE).first(10) + peers.faults
      faults += faulty_traces(folder) + sockets_left(folder)
      faults << "the process, or a child, did not end as it should" unless ended
      @answers += peers.answers
      report(seed, plan, faults, lines) if faults.any? || ENV["VERBOSE"]
      faults.empty?
    ensure
      peers&.stop
    end

    def supervisor(plan, seed, folder)
      environment = {"INSIGHT_FUZZ_SEED" => seed.to_s, "INSIGHT_FUZZ_FOLDER" => folder, "SECONDS" => @seconds.to_s,
                     "XDG_RUNTIME_DIR" => folder, "HEDDLE_INSIGHT" => nil}
      ApiFuzz::Supervisor.new(@program, seconds: @seconds, patience: PATIENCE, environment: environment,
        orphans: ORPHANS) { |status| plan.allows?(status) }
    end

    def report(seed, plan, faults, lines)
      puts "seed #{seed} (#{plan}): #{faults.empty? ? "passed" : "failed"}"
      puts faults.map { |fault| "FAULT #{fault}" }, "its output:", lines if faults.any?
    end

    # Of those that were not cut off by the end of their process.
    def faulty_traces(folder)
      Dir.glob("#{folder}/*.ended").filter_map do |mark|
        @traces += 1
        path = mark.delete_suffix(".ended")
        wrong = JSON.parse(File.read(path)).find { |event| event["ts"].to_f < 0 || event["dur"].to_f < 0 }
        "a trace has #{wrong}" if wrong
      rescue JSON::ParserError, SystemCallError => error
        "a trace: #{error.message[0, 300]}"
      end
    end

    # Who listens next removes sockets of processes that were killed.
    def sockets_left(folder)
      own = File.join(folder, "heddle")
      return [] unless File.directory?(own)

      Heddle::Insight::Folder.new(own).bind(Process.pid) {}
      Dir.glob("#{own}/*.sock").map { |path| "#{path} is left" }
    end
  end
end
