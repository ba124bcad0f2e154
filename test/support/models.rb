# frozen_string_literal: true

require "rbconfig"
require "tempfile"
require_relative "../../lib/heddle/core/clock"
require_relative "slowness"

# The models of test/simulation in a tree, run again and again, each time with other seeds.
class Models
  include Heddle::Clock

  # These test the simulation itself, and the finding of faults.
  NO_MODELS = %w[simulation_test.rb simulated_network_test.rb simulated_sockets_test.rb past_faults_test.rb].freeze
  # A run of a model takes some seconds. One that takes so long is in an endless loop, which is a finding.
  RUN_SECONDS = 120
  # Not the record of the tests that run this, nor another build; and all seeds that a model asks for.
  ENVIRONMENT = {"HEDDLE_TEST_RECORD" => nil, "HEDDLE_NATIVE_DIR" => nil, "SIMULATION_RUNS" => "1"}.freeze
  # Between the first seeds of two runs.
  STEP = 1000

  # What a run of a model has found. `seed` is nil where no seed failed, but all together did.
  Finding = Struct.new(:model, :test, :seed, :error, :output) do
    def to_s = "#{model}, #{test || "before any test"}, #{seed ? "seed #{seed}" : "no single seed"}: #{error}"
  end

  # @return [Integer] how many runs there were
  attr_reader :runs

  # @param tree [String] the folder of a checkout that is compiled
  def initialize(tree)
    @tree = tree
    @runs = 0
  end

  # @param first [String, nil] the model that begins
  # @param seed [Integer] the first one
  # @return [Finding, nil] the first that there is within this time
  def look(seconds, first: nil, seed: 1)
    finish = now + seconds
    [*first, *(names - [first])].cycle.with_index do |model, number|
      break if now >= finish

      seed += STEP if number.positive? && (number % names.size).zero?
      finding = run(model, seed)
      break finding if finding
    end
  end

  private

  def names = @names ||= Dir.children(File.join(@tree, "test/simulation")).grep(/_test\.rb\z/).sort - NO_MODELS

  def run(model, seed)
    @runs += 1
    Tempfile.create("heddle-model") do |log|
      pid = Process.spawn({"SIMULATION_SEED" => seed.to_s, **ENVIRONMENT}, RbConfig.ruby, "-Itest", "-Ilib",
        "test/simulation/#{model}", chdir: @tree, out: log, err: %i[child out], pgroup: true)
      status = wait(pid)
      finding(model, File.read(log.path).scrub, status) unless status&.success?
    end
  end

  # @return [Process::Status, nil] nil: it had to be killed
  def wait(pid)
    late = now + Slowness.stretch(RUN_SECONDS)
    until (ended = Process.wait2(pid, Process::WNOHANG))
      sleep 0.02
      next if now < late

      Process.kill(:KILL, -pid)
      Process.wait(pid)
      return
    end
    ended.last
  end

  def finding(model, output, status)
    test = output[/^ +1\) \w+:\n\S+#(\w+)/, 1]
    seed = output[/^heddle\/simulation: seed (\d+) fails/, 1] || output[/\bseed (\d+) fails: /, 1]
    error = output[/^ +1\) \w+:\n\S+[^\n]*\n([^\n]*)/, 1] || output.strip.lines.last
    error = output[/\[BUG\][^\n]*/] || error
    error = "the process did not end" unless status
    Finding.new(model, test, seed&.to_i, error.to_s[0, 200], output)
  end
end
