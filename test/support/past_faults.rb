# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"
require_relative "models"

# Puts faults that this library has had back into a copy of the tree, one at a time, and lets the models of
# test/simulation look for each: a model that finds nothing is of no use. `script/find-past-faults` runs this.
class PastFaults
  ROOT = File.expand_path("../..", __dir__)
  FOLDER = "test/simulation/past_faults"

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
    @models = Models.new(copy)
    files, = Open3.capture2("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", chdir: ROOT)
    built = [*Dir["#{ROOT}/lib/heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}"], *Dir["#{ROOT}/tmp/*/heddle/#{RUBY_VERSION}"]]
    [*files.split("\0"), *built.map { |path| path.delete_prefix("#{ROOT}/") }].each { |path| take(path) }
  end

  # @param seconds [Numeric] the most time to look for it
  # @return [Models::Finding, nil]
  def find(fault, seconds)
    git_apply(fault)
    compile if fault.in_c? || @compiled # the fault before is to be gone
    @compiled = fault.in_c?
    @models.look(seconds, first: fault.model)
  ensure
    git_apply(fault, "--reverse")
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
end
