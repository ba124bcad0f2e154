# frozen_string_literal: true

require "open3"
require "rubygems/version"

# Checks a compiled library of a gem that is installed where nothing is compiled: it must load on every system that its
# platform names, and tell nothing of the machine that it was built on.
class NativeLibrary
  MACHINES = {"x86_64-linux-gnu" => /X86-64/, "aarch64-linux-gnu" => /AArch64/}.freeze
  # Debian 10, RHEL 8 and Ubuntu 18.10 have it.
  NEWEST_GLIBC = Gem::Version.new("2.28")
  NEEDED = %w[libc.so.6 libm.so.6 libpthread.so.0 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1].freeze
  # What is there when the code is loaded, without a library that it names: Ruby, and what the compiler itself adds.
  PRESENT = /\A(?:rb_|ruby_|onig|st_|_ITM_|__gmon_start__\z)/
  private_constant :MACHINES, :NEEDED, :PRESENT

  # @param path [String]
  # @param extension [NativeExtension]
  # @param platform [String] such as "x86_64-linux-gnu"
  # @param ruby [String] such as "4.0"
  # @param paths [Array<String>] of the machine that built it, which it may not name
  def initialize(path, extension, platform:, ruby:, paths: [])
    @path = path
    @extension = extension
    @platform = platform
    @ruby = ruby
    @paths = paths
  end

  # @return [Array<String>] what is wrong, one line each
  def problems
    return ["is no shared library"] unless header.match?(/Type: +DYN/)

    [*machine, *compiled_for, *newer_symbols, *unknown_symbols, *exported, *needed, *run_path, *named_paths, *stripped,
      *lacking]
  end

  private

  def machine
    ["is for #{header[/Machine: +(.*)/, 1]}, not #{@platform}"] unless header.match?(MACHINES.fetch(@platform))
  end

  def compiled_for
    found = bytes[/compiled for Ruby (\d+\.\d+)/n, 1]
    ["is compiled for Ruby #{found || "unknown"}, not #{@ruby}"] unless found == @ruby
  end

  def newer_symbols
    # The linker also notes a version of which no function is used, such as GLIBC_ABI_DT_RELR.
    versions = read("--version-info").scan(/Name: GLIBC_(\S+)/).flatten.uniq
    newer = versions.reject { |version| version.match?(/\A\d/) && Gem::Version.new(version) <= NEWEST_GLIBC }
    newer.map do |version|
      names = undefined.filter_map { |name| name[/\A(.+)@GLIBC_#{Regexp.escape(version)}\z/, 1] }
      "needs #{["glibc #{version}", *names].join(", ")}: at most glibc #{NEWEST_GLIBC}"
    end
  end

  def unknown_symbols
    present = Regexp.union(PRESENT, *@extension.needed.values)
    undefined.reject { |name| name.include?("@") || name.match?(present) }.map { |name| "lacks #{name}" }
  end

  def exported
    names = symbols.filter_map { |symbol| symbol[:name] unless symbol[:undefined] }
    (names - @extension.exported).map { |name| "exports #{name}" }
  end

  def needed
    names = dynamic.scan(/\(NEEDED\).*\[(.*)\]/).flatten - NEEDED - @extension.needed.keys
    names.map { |name| "needs the library #{name}" }
  end

  def run_path = dynamic.scan(/\((?:RUNPATH|RPATH)\).*\[(.*)\]/).flatten.map { |path| "looks for libraries in #{path}" }

  def named_paths
    [*@paths, "/home/", "/root/"].select { |path| bytes.include?(path.b) }.map { |path| "names #{path}" }
  end

  def stripped
    sections = read("--sections")
    [("is not stripped" if sections.match?(/\.symtab|\.debug_info/)),
      ("does not name its debug file" unless sections.include?(".gnu_debuglink"))].compact
  end

  def lacking
    @extension.contained.reject { |_, text| bytes.include?(text.b) }.keys.map { |what| "lacks #{what}" }
  end

  def undefined = symbols.filter_map { |symbol| symbol[:name] if symbol[:undefined] }

  # Num: Value Size Type Bind Vis Ndx Name@VERSION (number)
  def symbols
    @symbols ||= read("--dyn-syms").scan(/^ *\d+: +\h+ +\S+ +\S+ +(?:GLOBAL|WEAK) +\S+ +(\S+) +(\S+)/)
      .map { |section, name| {undefined: section == "UND", name: name.sub("@@", "@")} }
  end

  def header = @header ||= read("--file-header")

  def dynamic = @dynamic ||= read("--dynamic")

  def bytes = @bytes ||= File.binread(@path)

  def read(part)
    text, errors, = Open3.capture3({"LC_ALL" => "C"}, "readelf", "--wide", part, @path)
    text.empty? ? errors : text
  end
end
