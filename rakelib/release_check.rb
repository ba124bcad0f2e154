# frozen_string_literal: true

require_relative "release_notes"
require_relative "release_tag"

# Checks that the tree may be released as its version.
class ReleaseCheck
  # Domains that RFC 2606 reserves for examples stand for what only the owners know, until they fill it in.
  PLACEHOLDER = %r{(?:https?://|[\w.+-]+@)heddle\.example[\w./-]*}
  # What no file of the tree can hold, with its place.
  ELSEWHERE = {
    "the registry, trusted publishers of the gems heddle, heddle-odbc and heddle-lab" =>
      "the repository, its workflow release.yml and its environment release (pending ones before the first release)",
    "the repository's settings, environments" =>
      "release, with those who approve its use, and github-pages; tags v* may use both, and no branch the first. " \
      "Before the first tag: a workflow that names a missing environment makes it, without any approval",
    "the repository's settings, rules" =>
      "that nobody else pushes tags v*, since a tag brings its own release.yml, which need not check who signed it; " \
      "and that main only takes what is reviewed",
    "the repository's settings, Pages" => "the source: GitHub Actions",
    "the repository's settings, security" => "private reports of vulnerabilities, which SECURITY.md promises"
  }.freeze

  # @param root [String]
  def initialize(root)
    @root = root
    @notes = ReleaseNotes.new(read("CHANGELOG.md"), version)
  end

  # @return [Array<String>] what keeps this tree from being tagged, one line each
  def problems = [*tree, ("git: #{tag} is there already" unless git("tag", "--list", tag).empty?)].compact

  # @param trusted [String] see {ReleaseTag}
  # @param pushed [String, nil] the tag for which the workflow runs: it publishes under that name
  # @return [Array<String>] what keeps this tree, which is tagged, from being released
  def problems_of_tag(trusted: "HEAD", pushed: nil)
    other = "git: #{pushed} is not the tag of this version, which is #{tag}" unless [nil, tag].include?(pushed)
    [*tree, *other, *ReleaseTag.new(@root, tag, @notes.date, trusted: trusted).problems]
  end

  # @return [Array<String>] what only the owners can fill in, in the files: the place of each, and what stands there
  def placeholders
    found = git("grep", "-n", "heddle\\.example", "--", ".", ":!rakelib", ":!test").lines.flat_map do |line|
      place, text = line.match(/\A([^:]+:\d+):(.*)/).captures
      text.scan(PLACEHOLDER).map { |placeholder| "#{place}: put your own in place of #{placeholder}" }
    end
    signers = "#{ReleaseTag::SIGNERS}: put in the keys of those who may sign a release"
    found + (ReleaseTag.new(@root, tag, nil).signers.empty? ? [signers] : [])
  end

  private

  def tree = [*changes, *long_entries, *placeholders, *uncommitted]

  def version = @version ||= read("lib/heddle/version.rb")[/VERSION = "([^"]+)"/, 1]

  def tag = "v#{version}"

  def changes
    ["CHANGELOG.md: begin with `## #{version} - YYYY-MM-DD`"] unless @notes.date
  end

  def long_entries
    longer = read("CHANGELOG.md").lines.grep(/\A  \S/)
    longer.map { |line| "CHANGELOG.md: one line an entry, not #{line.strip[0, 40].inspect}" }
  end

  def uncommitted = git("status", "--porcelain").empty? ? [] : ["git: uncommitted changes"]

  # Where git refuses the folder, nothing would be uncommitted. 1: `git grep` finds nothing.
  def git(*arguments)
    said = IO.popen(["git", *arguments], chdir: @root, &:read)
    raise "git #{arguments.first} failed in #{@root}" unless $?.exitstatus&.<=(1)

    said
  end

  def read(file) = File.read(File.join(@root, file))
end
