# frozen_string_literal: true

require "etc"
require "fileutils"
require "pathname"
require "rbconfig"
require_relative "native_extension"

# Compiles an extension for one platform and each of its Rubies, which need not run on this machine.
class NativeBuild
  RUBIES = %w[3.1 3.2 3.3 3.4 4.0].freeze
  PLATFORMS = %w[x86_64-linux-gnu aarch64-linux-gnu].freeze

  # @param all [Symbol] :RUBIES or :PLATFORMS
  # @return [Array<String>] all, or those that NATIVE_RUBIES or NATIVE_PLATFORMS in the environment names
  def self.chosen(all) = ENV.fetch("NATIVE_#{all}") { const_get(all).join(",") }.split(/[ ,]+/)

  # @return [String] such as "x86_64-linux-gnu"
  attr_reader :platform

  # @param root [String] the checkout
  # @param platform [String]
  def initialize(root, platform)
    @root = root
    @platform = platform
  end

  # @return [Array<String>] the Rubies of RUBIES whose headers are here
  def rubies = RUBIES.select { |ruby| rbconfigs[ruby] }

  # @return [Array<String>] the paths of this machine that may be in no library
  def paths = [@root, sysroot, Dir.home, *rbconfigs.values.map { |path| File.dirname(path) }].uniq

  # @param package [String] whose code is linked into a library
  # @return [String] path of its licence
  def licence(package) = "#{sysroot}/usr/share/doc/#{package}/copyright"

  # Compiles, and separates the debug information.
  #
  # @param extension [NativeExtension]
  # @param ruby [String] such as "4.0"
  # @param library [String] where the library is to be
  # @param debug [String] where its debug information is to be
  # @return [void]
  def compile(extension, ruby, library, debug)
    folder = File.expand_path("tmp/native/#{platform}/#{ruby}/#{File.dirname(extension.gemspec)}", @root)
    FileUtils.rm_rf(folder)
    FileUtils.mkdir_p([folder, File.dirname(library), File.dirname(debug)])
    # The path that begins here is the same in every checkout, and so are the bytes.
    extconf = Pathname("#{@root}/#{extension.sources}/extconf.rb").relative_path_from(Pathname(folder)).to_s
    run(folder, RbConfig.ruby, "--disable=gems", "-r#{@root}/rakelib/native_target.rb", extconf, ruby: ruby)
    run(folder, "make", "--silent", "-j#{Etc.nprocessors}", ruby: ruby)
    separate("#{folder}/#{extension.name}", library, debug)
  end

  private

  # The flags map all folders to names that are the same everywhere, so that each machine makes the same bytes.
  def environment(ruby)
    rbconfig = rbconfigs.fetch(ruby)
    includes = rbconfig[%r{\A.*(?=/lib/)}] # the Ruby's prefix
    maps = {sysroot => "", includes => "/ruby", @root => "/heddle"}.map { |from, to| "-ffile-prefix-map=#{from}=#{to}" }
    {
      "HEDDLE_TARGET_RBCONFIG" => rbconfig,
      "HEDDLE_TARGET_CC" => "#{platform}-gcc --sysroot=#{sysroot} #{maps.join(" ")}",
      "HEDDLE_WERROR" => nil, # each processor's optimizer has doubts of its own; `rake warnings` looks for true ones
      "HEDDLE_COMPLETE" => "1",
      "PKG_CONFIG_LIBDIR" => "#{sysroot}/usr/lib/#{platform}/pkgconfig",
      "PKG_CONFIG_SYSROOT_DIR" => sysroot,
      "RUBYOPT" => nil # Bundler's
    }
  end

  def run(folder, *command, ruby:)
    output = IO.popen(environment(ruby), command, chdir: folder, err: %i[child out], &:read)
    raise "#{platform}, Ruby #{ruby}: #{command.join(" ")} failed:\n#{output}" unless $?.success?
  end

  def separate(built, library, debug)
    tool("objcopy", "--only-keep-debug", built, debug)
    tool("strip", "--strip-unneeded", "-o", library, built)
    tool("objcopy", "--add-gnu-debuglink=#{debug}", library)
    File.chmod(0o644, library, debug)
  end

  def tool(name, *arguments)
    system("#{platform}-#{name}", *arguments) or raise "#{platform}-#{name} #{arguments.join(" ")} failed"
  end

  def sysroot = @sysroot ||= IO.popen(["#{@root}/script/sysroot", platform], &:read).chomp.tap do |folder|
    raise "script/sysroot #{platform} failed" if folder.empty?
  end

  # Those of Debian, and for other versions: those of rake-compiler-dock, and those that are installed here, whose
  # headers are for this machine's processor.
  def rbconfigs
    @rbconfigs ||= begin
      own = platform.start_with?(RbConfig::CONFIG["host_cpu"])
      places = [("{/usr/local,{/opt/rubies,#{Dir.home}/.rubies}/*}/lib/ruby/*/*-linux*" if own),
        "/usr/local/rake-compiler/ruby/#{platform}/*/lib/ruby/*/*-linux*", "#{sysroot}/usr/lib/#{platform}/ruby/*"]
      places.compact.map { |place| by_version(Dir["#{place}/rbconfig.rb"]) }.reduce(:merge)
    end
  end

  def by_version(paths) = paths.sort.to_h { |path| [path[%r{/ruby/(\d+\.\d+)\.}, 1], path] }
end
