# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"
require "tempfile"
require "tmpdir"

# Puts faults that this library has had back into a copy of the tree, one at a time, and lets the models of
# test/simulation look for each: a model that finds nothing is of no use. `script/find-past-faults` runs this.
class PastFaults
  ROOT = File.expand_path("../..", __dir__)
  FOLDER = "test/simulation/past_faults"
  # These test the simulation, and the finding of faults.
  NO_MODELS = %w[simulation_test.rb past_faults_test.rb].freeze
  # A run of a model takes some seconds. One that takes so long is in an endless loop, which is a finding.
  RUN_SECONDS = 120
  # The record of the tests that run this, another build, more seeds.
  UNSET = {"HEDDLE_TEST_RECORD" => nil, "HEDDLE_NATIVE_DIR" => nil, "SIMULATION_RUNS" => nil}.freeze
  # Between the first seeds of two runs.
  STEP = 1_000_000

  # A fault, and the patch that puts it back.
  Fault = Struct.new(:path) do
    def name = File.basename(path, ".patch")

    # @return [String] what it was: the text above the patch
    def description = head[/\A.*?(?=^Model:)/m].split.join(" ")

    # @return [String] the model that is expected to find it, and so runs first
    def model = head[/^Model: (\S+)/, 1]

    def head = File.read(path)[/\A.*?(?=^diff --git)/m]

    def in_c? = File.foreach(path).any?(%r{\A\+\+\+ b/ext/})

    # @return [Boolean] whether the patch fits the tree
    def fits?(tree = ROOT) = system("git", "apply", "--check", path, chdir: tree)
  end

  # What a run of a model has found. `seed` is nil where no seed failed, but all together did.
  Finding = Struct.new(:model, :test, :seed, :error) do
    def to_s = "#{model}, #{test || "before any test"}, #{seed ? "seed #{seed}" : "no single seed"}: #{error}"
  end

  # @return [Array<Fault>]
  def self.all = Dir[File.join(ROOT, FOLDER, "*.patch")].sort.map { |path| Fault.new(path) }

  # Yields one with a copy of the tree. Only what Git does not ignore is copied, and what was built for this Ruby.
  def self.open
    Dir.mktmpdir("heddle-past-faults") do |copy|
      yield new(copy)
    end
  end

  def initialize(copy)
    @copy = copy
    files, = Open3.capture2("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", chdir: ROOT)
    built = [*Dir["#{ROOT}/lib/heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}"], *Dir["#{ROOT}/tmp/*/heddle/#{RUBY_VERSION}"]]
    [*files.split("\0"), *built.map { |path| path.delete_prefix("#{ROOT}/") }].each { |path| take(path) }
  end

  # @param seconds [Numeric] the most time to look for it
  # @return [Finding, nil]
  def find(fault, seconds)
    git_apply(fault)
    compile if fault.in_c? || @compiled # the fault before is to be gone
    @compiled = fault.in_c?
    look([fault.model, *(models - [fault.model])], now + seconds)
  ensure
    git_apply(fault, "--reverse")
  end

  # @return [Array<String>] the names of the models
  def models = Dir.children(File.join(@copy, "test/simulation")).grep(/_test\.rb\z/).sort - NO_MODELS

  # Runs the models again and again, each time with other seeds.
  #
  # @return [Finding, nil]
  def look(models, deadline)
    seed = 1
    models.cycle.with_index do |model, number|
      break if now >= deadline

      seed += STEP if number.positive? && model == models.first
      finding = run(model, seed)
      break finding if finding
    end
  end

  private

  def take(path)
    from = File.join(ROOT, path)
    return unless File.exist?(from) # deleted, and not yet from the index

    FileUtils.mkdir_p(File.dirname(File.join(@copy, path)))
    FileUtils.cp_r(from, File.join(@copy, path), preserve: true) # make goes by the times
  end

  def git_apply(fault, *options)
    system("git", "apply", *options, fault.path, chdir: @copy, exception: true)
  end

  def compile
    output, status = Open3.capture2e(RbConfig.ruby, "-S", "rake", "compile:heddle", chdir: @copy)
    raise "the build fails:\n#{output}" unless status.success?
  end

  def run(model, seed)
    Tempfile.create("heddle-model") do |log|
      pid = Process.spawn({"SIMULATION_SEED" => seed.to_s, **UNSET}, RbConfig.ruby, "-Itest", "-Ilib",
        "test/simulation/#{model}", chdir: @copy, out: log, err: %i[child out], pgroup: true)
      status = wait(pid)
      finding(model, File.read(log.path).scrub, status) unless status&.success?
    end
  end

  # @return [Process::Status, nil] nil: it had to be killed
  def wait(pid)
    late = now + RUN_SECONDS
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
    Finding.new(model, test, seed&.to_i, error.to_s[0, 200])
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
