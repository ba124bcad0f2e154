# frozen_string_literal: true

# Checks that the tree may be released as its version.
class ReleaseCheck
  # @param root [String]
  def initialize(root)
    @root = root
  end

  # @return [Array<String>] what is missing, one line each
  def problems
    [*changes, *long_entries, *addresses, *left_over]
  end

  private

  def version = @version ||= read("lib/heddle/version.rb")[/VERSION = "([^"]+)"/, 1]

  def changes
    date = read("CHANGELOG.md")[/^## #{Regexp.escape(version)}(?: - (.*))?$/, 1]
    ["CHANGELOG.md: write `## #{version} - YYYY-MM-DD`"] unless date&.match?(/\A\d{4}-\d\d-\d\d\z/)
  end

  def long_entries
    longer = read("CHANGELOG.md").lines.grep(/\A  \S/)
    longer.map { |line| "CHANGELOG.md: one line an entry, not #{line.strip[0, 40].inspect}" }
  end

  # Domains that RFC 2606 reserves for examples stand for the project's future addresses.
  def addresses
    unfinished = %w[heddle.gemspec lab/heddle-lab.gemspec odbc/heddle-odbc.gemspec README.md guides/getting_started.md]
      .select { |file| read(file).include?("heddle.example") }
    unfinished.map { |file| "#{file}: put the repository's address in place of heddle.example" }
  end

  def left_over
    changed = git("status", "--porcelain")
    tag = git("tag", "--list", "v#{version}")
    [("git: uncommitted changes" unless changed.empty?), ("git: v#{version} is there already" unless tag.empty?)]
      .compact
  end

  def git(*arguments) = IO.popen(["git", *arguments], chdir: @root, &:read)

  def read(file) = File.read(File.join(@root, file))
end
