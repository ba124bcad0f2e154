# frozen_string_literal: true

# The versions of gems that the tests stand on: in gem_versions/ a file for each Ruby, with all gems of its bundle, one
# for each with those of test/compatibility/Gemfile, and one for gems that some tests take besides. Without them,
# somebody else's release could turn the tests red. Bundler's own lock files do not serve here, since no one lock suits
# every Ruby. `bin/test --newest` takes the newest versions instead, and `rake versions` adopts those that the bundles
# of this checkout have.
module GemVersions
  FOLDER = File.expand_path("gem_versions", __dir__)

  module_function

  # @param set [String] "3.1" and the like, "compatibility-3.1" and the like, or "beside"
  # @return [Hash{String => String}] versions by name; empty for a Ruby without a file
  def of(set)
    path = File.join(FOLDER, "#{set}.txt")
    File.exist?(path) ? File.readlines(path).to_h(&:split) : {}
  end

  # @return [String] as `gem install` takes it
  def named(name, set)
    ENV["HEDDLE_NEWEST"] ? name : [name, of(set).fetch(name)].join(":")
  end

  # @param lock [String] the path of a lock file of Bundler's
  # @return [Hash{String => String}] all gems in it that do not come from this tree
  def locked(lock)
    File.read(lock).scan(/^    ([\w.-]+) \(([\w.]+)(?:-[^)]*)?\)$/).to_h.reject { |name, _| name.start_with?("heddle") }
  end

  # @return [Array<String>] a line for each gem of which the two have other versions
  def changes(tested, found)
    (tested.keys | found.keys).sort.filter_map do |name|
      before, after = tested[name], found[name]
      "#{name} #{before || "(none)"} -> #{after || "(none)"}" unless before == after
    end
  end

  def write(set, versions)
    File.write(File.join(FOLDER, "#{set}.txt"), versions.sort.map { |pair| "#{pair.join(" ")}\n" }.join)
  end
end
