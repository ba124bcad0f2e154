# frozen_string_literal: true

# Runs the suites of libraries, as they are and over Heddle, and compares what becomes of each test. A difference that
# test/peers/differences.txt does not name, or any hang, is a failure. Called by test/peers/run, in a bundle with the
# libraries in these versions.

require "fileutils"
require_relative "../support/servers"

# A library's own suite, at the tag of its installed version.
class Peer
  FOLDER = File.expand_path("../../tmp/peers", __dir__)
  # Seconds for a suite, in which each test of it has its own limits.
  PATIENCE = 1200
  # What runs a suite, which files of its own, and how it runs over Heddle: the names of variants, and the files of this
  # folder to load first.
  SUS = {driver: "sus_names", files: [], variants: {"heddle/async" => %w[over_async]}}.freeze
  MINITEST = {
    "sidekiq" => {driver: "minitest_names", files: "test/**/*_test.rb",
                  variants: {"capsules on fibers" => %w[capsules_on_fibers], "tests in tasks" => %w[tests_in_tasks]}},
    "puma" => {driver: "minitest_names", files: "test/test_*.rb", variants: {"plugin's pool" => %w[fibers_in_puma]}}
  }.freeze
  private_constant :FOLDER, :PATIENCE, :SUS, :MINITEST

  attr_reader :name, :variants

  def initialize(name)
    @name = name
    @gem = Gem.loaded_specs.fetch(name)
    @folder = "#{FOLDER}/#{name}-#{@gem.version}"
    @driver, @files, @variants = MINITEST.fetch(name, SUS).values_at(:driver, :files, :variants)
  end

  def fetch
    return if File.directory?(@folder)

    FileUtils.rm_rf("#{@folder}.new")
    system("git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth", "1", "--branch", "v#{@gem.version}",
      @gem.metadata.fetch("source_code_uri"), "#{@folder}.new", exception: true)
    # Its own build would need what the bundle lacks.
    FileUtils.rm_f(["#{@folder}.new/Gemfile", "#{@folder}.new/gems.rb"])
    Dir.glob("**/*.so", base: @gem.extension_dir) do |file|
      FileUtils.cp("#{@gem.extension_dir}/#{file}", "#{@folder}.new/lib/#{file}")
    end
    File.rename("#{@folder}.new", @folder)
  end

  # @return [Hash{String => String}] what became of each test: passed, failed, skipped; hung, the last one that began
  def results(*preloads)
    lines = []
    output = IO.popen(environment, command(preloads), chdir: @folder, err: "#{@folder}.log", pgroup: true)
    watchdog = Thread.new { sleep(PATIENCE) && stop(output) }
    output.each_line { |line| lines << line.scrub.chomp }
    read(lines)
  ensure
    watchdog&.kill
    stop(output) if output # also what the suite has started, and left
    output&.close
  end

  private

  def stop(output)
    Process.kill(:KILL, -output.pid)
  rescue Errno::ESRCH
    nil # it has ended
  end

  def environment
    {"CONSOLE_LEVEL" => "fatal", "REDIS_URL" => (Servers.redis.url if name == "sidekiq")}
  end

  def command(preloads)
    loads = [*preloads, @driver].flat_map { |file| ["-r", "#{__dir__}/#{file}.rb"] }
    files = Dir.glob(@files, base: @folder).sort
    ["ruby", "-W:no-experimental", "-Itest", *loads, "-e", "PeerNames.run(ARGV)", *files]
  end

  # Lines are "began NAME", then "passed NAME" or the like, behind what the tests print themselves.
  def read(lines)
    lines.each_with_object({}) do |line, results|
      next unless (found = line.match(/\bpeer-test (began|passed|failed|skipped) (.+)\z/))

      results[found[2]] = (found[1] == "began") ? "hung" : found[1]
    end
  end
end

# What is known to differ: lines "library | variant | test | reason".
class KnownDifferences
  def initialize
    @known = File.readlines(File.expand_path("differences.txt", __dir__), chomp: true)
      .reject { |line| line.start_with?("#") || line.empty? }.to_h { |line| [line.split(" | ", 4).first(3), line] }
  end

  def include?(*place) = @known.key?(place)
end

known = KnownDifferences.new
names = ARGV.empty? ? File.readlines("#{__dir__}/versions.txt").grep_v(/\A#/).map { |line| line.split.first } : ARGV
unknown = names.flat_map do |name|
  peer = Peer.new(name)
  peer.fetch
  stock = peer.results
  puts "#{name}: #{stock.size} tests, #{stock.values.tally}"
  peer.variants.flat_map do |variant, preloads|
    # A test that fails by itself, as without a network, says nothing of Heddle.
    differing = lambda do |results|
      stock.keys.reject { |test| [results[test], "failed", "hung"].include?(stock[test]) }
    end
    results = peer.results(*preloads)
    found = differing.call(results).reject { |test| known.include?(name, variant, test) }
    # What does not fail again is a test that sometimes fails.
    found &= differing.call(again = peer.results(*preloads)) if found.any?
    puts "#{name}, #{variant}: #{results.values.tally}, #{found.size} unknown differences"
    found.map { |test| "#{name} | #{variant} | #{test} | #{stock[test]}, and here #{again[test] || "not run"}" }
  end
end
puts unknown
exit unknown.empty?
