# frozen_string_literal: true

require "fileutils"
require "rubygems/package"
require "tmpdir"
require_relative "native_build"
require_relative "native_library"

# The gem for a platform: what the source gem has, with compiled code for each Ruby in place of the C.
class NativeGem
  # 3.3.22 was the first to tell glibc from musl in a platform's name. Older ones take the source gem.
  RUBYGEMS = Gem::Requirement.new(">= 3.3.22")

  # @param root [String] the checkout
  # @param extension [NativeExtension]
  # @param platform [String]
  # @param rubies [Array<String>] those that it is for
  def initialize(root, extension, platform, rubies)
    @gemspec = File.join(root, extension.gemspec)
    @extension = extension
    @platform = platform
    @rubies = rubies
  end

  # @return [Gem::Specification]
  def spec
    Gem::Specification.load(@gemspec).dup.tap do |spec|
      spec.platform = Gem::Platform.new(@platform)
      spec.extensions = []
      spec.files = spec.files.grep_v(%r{\Aext/}) + libraries.values + @extension.licences.keys
      spec.files.sort!
      spec.required_ruby_version = [">= 3.1.2", "< #{Gem::Version.new("#{@rubies.max}.0").bump}.dev"]
      spec.required_rubygems_version = RUBYGEMS
    end
  end

  # @return [Hash{String => String}] the path of each Ruby's library in the gem
  def libraries = @rubies.to_h { |ruby| [ruby, format(@extension.library, ruby)] }

  # Compiles, and packs, which takes a RubyGems that tells C libraries apart. SOURCE_DATE_EPOCH is the time of all files
  # in the gem.
  #
  # @param folder [String] where the gem is to be, and the folder debug/ with the debug information
  # @param build [NativeBuild]
  # @return [String] the gem's path
  def build(folder, build)
    unless RUBYGEMS.satisfied_by?(Gem.rubygems_version)
      raise "RubyGems #{Gem::VERSION} would name no C library in the gem's platform: build with RubyGems #{RUBYGEMS}"
    end

    Dir.mktmpdir do |stage|
      libraries.each do |ruby, path|
        debug = File.join(folder, "debug", @platform, ruby, "#{@extension.name}.debug")
        build.compile(@extension, ruby, File.join(stage, path), debug)
      end
      @extension.licences.each { |path, (package, _)| copy(build.licence(package), File.join(stage, path)) }
      (spec.files - libraries.values - @extension.licences.keys).each do |path|
        copy(File.expand_path(path, File.dirname(@gemspec)), File.join(stage, path))
      end
      path = File.expand_path(spec.file_name, folder)
      Dir.chdir(stage) { Gem::Package.build(spec, false, true, path) }
      path
    end
  end

  # @param path [String] of a gem
  # @param paths [Array<String>] of the machine that built it
  # @return [Array<String>] what is wrong with it, one line each
  def problems(path, paths: [])
    package = Gem::Package.new(path)
    [*differences(package.spec), *Dir.mktmpdir { |folder|
      package.extract_files(folder)
      of_files(folder) + of_libraries(folder, paths)
    }]
  end

  private

  def copy(from, to)
    FileUtils.mkdir_p(File.dirname(to))
    FileUtils.cp(from, to)
    File.chmod(File.executable?(from) ? 0o755 : 0o644, to) # whatever the umask
  end

  def differences(found)
    %i[name version platform files extensions require_paths bindir executables licenses required_ruby_version
      required_rubygems_version dependencies].filter_map do |field|
      is, wanted = found.public_send(field), spec.public_send(field)
      "its #{field}: #{is.inspect}, not #{wanted.inspect}" unless is == wanted
    end
  end

  def of_files(folder)
    files = Dir.glob("**/*", File::FNM_DOTMATCH, base: folder).select { |path| File.file?(File.join(folder, path)) }
    wrong = @extension.licences.reject do |path, (_, words)|
      File.exist?(File.join(folder, path)) && File.read(File.join(folder, path)).include?(words)
    end
    [*(files - spec.files).map { |file| "has #{file}" }, *(spec.files - files).map { |file| "lacks #{file}" },
      *wrong.keys.map { |path| "#{path} is not its licence" }]
  end

  def of_libraries(folder, paths)
    libraries.select { |_, path| File.exist?(File.join(folder, path)) }.flat_map do |ruby, path|
      NativeLibrary.new(File.join(folder, path), @extension, platform: @platform, ruby: ruby, paths: paths).problems
        .map { |problem| "#{path} #{problem}" }
    end
  end
end
