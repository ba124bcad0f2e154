# frozen_string_literal: true

require "digest"
require "fileutils"

# Remembers which files were found in order, by their paths and texts, for all checkouts of this user. RuboCop's own
# memory has each file by the folder of its checkout, and so knows nothing in a fresh clone.
class StyledFiles
  MOST = 1 << 20 # bytes; then it begins anew
  private_constant :MOST

  # @return [StyledFiles] of this checkout's configuration and of the gems that are loaded
  def self.of_this_user
    cache = ENV.fetch("XDG_CACHE_HOME") { File.join(Dir.home, ".cache") }
    gems = Gem.loaded_specs.each_value.map(&:full_name).grep(/\A(?:standard|rubocop|parser|prism|lint_roller)/).sort
    new(File.join(cache, "heddle", "styled"), [RUBY_VERSION, *gems, File.read(".standard.yml")].join("\n"))
  end

  # @param memory [String] path of the file that keeps them
  # @param rules [String] all that decides about a file beside its text
  def initialize(memory, rules)
    @memory = memory
    @rules = rules
  end

  # @param paths [Array<String>]
  # @yieldparam unknown [Array<String>] those that have to be checked: the block raises unless they are in order. It
  #   is not called if there are none.
  # @return [void]
  def check(paths)
    known = File.exist?(@memory) ? File.readlines(@memory, chomp: true).to_h { |digest| [digest, true] } : {}
    unknown = paths.to_h { |path| [path, digest(path)] }.reject { |_, digest| known[digest] }
    return if unknown.empty?

    yield unknown.keys
    remember(unknown.values)
  end

  private

  def digest(path)
    parts = [@rules, path, File.stat(path).mode.to_s, File.binread(path)]
    parts.each_with_object(Digest::SHA256.new) { |part, digest| digest << part << "\0" }.hexdigest
  end

  def remember(digests)
    FileUtils.mkdir_p(File.dirname(@memory))
    FileUtils.rm_f(@memory) if File.size?(@memory).to_i > MOST
    File.open(@memory, "a") { |file| file.syswrite("#{digests.join("\n")}\n") }
  end
end
