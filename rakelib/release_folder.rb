# frozen_string_literal: true

require "digest"
require "fileutils"
require "rubygems/package"
require_relative "native_gem"
require_relative "release_notes"
require_relative "repository"

# All files that a release publishes: the gems, their checksums and debug information, the notes, and the site that
# `rake pages` makes.
class ReleaseFolder
  CHECKSUMS = "SHA256SUMS"
  # Where `rake package` and `rake gem:native` leave their gems.
  SOURCES = {"heddle" => "pkg/heddle.gem", "heddle-odbc" => "pkg/heddle-odbc.gem", "heddle-lab" => "pkg/heddle-lab.gem"}
    .freeze
  NATIVE = "pkg/native"
  private_constant :SOURCES, :NATIVE

  # @return [String]
  attr_reader :path

  # @param root [String] the checkout
  # @param path [String]
  # @param platforms [Array<String>] those of its gems with compiled code
  # @param rubies [Array<String>] those that these hold code for
  def initialize(root, path, platforms: NativeBuild::PLATFORMS, rubies: NativeBuild::RUBIES)
    @root = root
    @path = path
    @platforms = platforms
    @rubies = rubies
    @heddle = Gem::Specification.load(File.join(root, "heddle.gemspec"))
  end

  # Makes the folder anew.
  #
  # @param pages [String] folder of the site
  # @return [void]
  def collect(pages)
    FileUtils.rm_rf(@path)
    FileUtils.mkdir_p(@path)
    native = @platforms.flat_map { |platform| Dir.glob("#{NATIVE}/*-#{version}-#{platform}.gem", base: @root) }
    all = SOURCES.values + native
    all.map { |gem| File.join(@root, gem) }.select { |gem| File.exist?(gem) }.each do |gem|
      FileUtils.cp(gem, File.join(@path, Gem::Package.new(gem).spec.file_name))
    end
    archive(File.join(@root, NATIVE), "debug", debug)
    File.write("#{@path}/notes.md", notes)
    FileUtils.cp_r(pages, "#{@path}/site")
    File.write("#{@path}/#{CHECKSUMS}", checksums)
  end

  # @return [Array<String>] the names of all gems, those first on which others depend
  def gems
    SOURCES.keys.flat_map do |name|
      platforms = NativeExtension.of(name) ? @platforms.map { |platform| "-#{platform}" } : []
      ["", *platforms].map { |platform| "#{name}-#{version}#{platform}.gem" }
    end
  end

  # @return [Array<String>] where they are
  def paths = gems.map { |gem| File.join(@path, gem) }

  # @return [Array<String>] what is missing, or of another version, one line each
  def problems
    return ["#{@path} is not there: `rake release:collect` makes it"] unless Dir.exist?(@path)

    found = Dir.children(@path).grep(/\.gem\z/)
    lacking = gems - found
    lacking.map { |gem| "#{gem} is not there" } + (found - gems).map { |gem| "#{gem} is no gem of this release" } +
      (found & gems).flat_map { |gem| incomplete(gem) }
  end

  private

  def version = @heddle.version.to_s

  def notes
    ReleaseNotes.new(File.read(File.join(@root, "CHANGELOG.md")), version).text(Repository.files(@heddle))
  end

  def debug = "heddle-#{version}-debug.tar.gz"

  # In one order, and with no time of its own, so that the same files make the same bytes.
  def archive(folder, name, file)
    return unless File.directory?(File.join(folder, name))

    tar = %w[tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0]
    IO.pipe do |from, to|
      packed = Process.spawn(*tar, "--directory", folder, name, out: to)
      to.close
      zipped = Process.spawn("gzip", "--no-name", "-9", in: from, out: File.join(@path, file))
      from.close # or tar would wait for ever for a gzip that has ended
      failed = [packed, zipped].reject { |pid| Process.wait2(pid).last.success? }
      raise "#{file}: tar or gzip failed" if failed.any?
    end
  end

  def checksums
    files = Dir.children(@path).select { |file| file.end_with?(".gem", ".tar.gz") }.sort
    files.map { |file| "#{Digest::SHA256.file(File.join(@path, file)).hexdigest}  #{file}\n" }.join
  end

  # A gem with compiled code for some Rubies only is for tests.
  def incomplete(gem)
    spec = Gem::Package.new(File.join(@path, gem)).spec
    extension = NativeExtension.of(spec.name)
    return [] if spec.platform == Gem::Platform::RUBY || !extension

    missing = @rubies.reject { |ruby| spec.files.include?(format(extension.library, ruby)) }
    missing.map { |ruby| "#{gem} has no code for Ruby #{ruby}" }
  end
end
