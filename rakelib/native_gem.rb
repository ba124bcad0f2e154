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
  # @param platform [String]
  # @param rubies [Array<String>] those that it is for
  def initialize(root, platform, rubies)
    @root = root
    @platform = platform
    @rubies = rubies
  end

  # @return [Gem::Specification]
  def spec
    Gem::Specification.load(File.join(@root, "heddle.gemspec")).dup.tap do |spec|
      spec.platform = Gem::Platform.new(@platform)
      spec.extensions = []
      spec.files = spec.files.grep_v(%r{\Aext/}) + libraries.values + ["LICENSE-liburing"]
      spec.files.sort!
      spec.required_ruby_version = [">= 3.1.2", "< #{Gem::Version.new("#{@rubies.max}.0").bump}.dev"]
      spec.required_rubygems_version = RUBYGEMS
    end
  end

  # @return [Hash{String => String}] the path of each Ruby's library in the gem
  def libraries = @rubies.to_h { |ruby| [ruby, "lib/heddle/#{ruby}/heddle.so"] }

  # Compiles, and packs, which takes a RubyGems that tells C libraries apart. SOURCE_DATE_EPOCH is the time of all files in the gem.
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
        build.compile(ruby, File.join(stage, path), File.join(folder, "debug", @platform, ruby, "heddle.so.debug"))
      end
      copy(build.licence, File.join(stage, "LICENSE-liburing"))
      (spec.files - libraries.values - ["LICENSE-liburing"]).each do |path|
        copy(File.join(@root, path), File.join(stage, path))
      end
      File.expand_path(spec.file_name, folder).tap { |path| Dir.chdir(stage) { Gem::Package.build(spec, false, true, path) } }
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
    File.chmod(0o644, to)
  end

  def differences(found)
    %i[name version platform files extensions require_paths licenses required_ruby_version required_rubygems_version
      dependencies].filter_map do |field|
      is, wanted = found.public_send(field), spec.public_send(field)
      "its #{field}: #{is.inspect}, not #{wanted.inspect}" unless is == wanted
    end
  end

  def of_files(folder)
    files = Dir.glob("**/*", File::FNM_DOTMATCH, base: folder).select { |path| File.file?(File.join(folder, path)) }
    licence = File.join(folder, "LICENSE-liburing")
    [*(files - spec.files).map { |file| "has #{file}" }, *(spec.files - files).map { |file| "lacks #{file}" },
      *("LICENSE-liburing is not its licence" unless File.exist?(licence) && File.read(licence).include?("Jens Axboe"))]
  end

  def of_libraries(folder, paths)
    libraries.select { |_, path| File.exist?(File.join(folder, path)) }.flat_map do |ruby, path|
      NativeLibrary.new(File.join(folder, path), platform: @platform, ruby: ruby, paths: paths).problems
        .map { |problem| "#{path} #{problem}" }
    end
  end
end
