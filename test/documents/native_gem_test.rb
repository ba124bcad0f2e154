# frozen_string_literal: true

require "test_helper"
require "open3"
require "rubygems/user_interaction"
require "tmpdir"
require_relative "../../rakelib/native_gem"

runs_on rubies: :newest # whose RubyGems tells C libraries apart

# The checks of the gems with compiled code see each fault that such a gem may have. The libraries here are a few lines
# of C; `rake gem:native` checks the true ones.
class NativeGemTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  PLATFORM = "x86_64-linux-gnu"
  FINE = <<~'C'
    #include <stdlib.h>
    void rb_raise(void);
    static const char *const texts[] = {"compiled for Ruby 4.0", "\0uring"};
    __attribute__((visibility("default"))) const char *Init_heddle(void)
    {
        rb_raise();
        return texts[rand() & 1];
    }
  C

  def setup
    skip "the libraries are compiled for x86-64" unless RbConfig::CONFIG["host_cpu"] == "x86_64"
  end

  def test_a_library_with_no_fault
    assert_empty problems(FINE)
  end

  def test_a_newer_glibc
    source = "#include <sys/epoll.h>\n#{FINE}#{visible("int own(void) { return epoll_pwait2(0, 0, 0, 0, 0); }")}"
    assert_problem(/\Aneeds glibc 2\.35, epoll_pwait2: at most glibc 2\.28\z/, source, "-D_GNU_SOURCE")
  end

  # Some needs come from the linker's options, and name no function.
  def test_a_newer_loader
    source = "#{FINE}int one; int *own[] = {&one, &one};"
    assert_problem(/\Aneeds glibc ABI_DT_RELR: at most/, source, "-Wl,-z,pack-relative-relocs")
  end

  def test_another_machine
    assert_problem(/\Ais for AArch64, not x86_64-linux-gnu\z/, FINE) { |path| File.binwrite(path, "\xB7".b, 18) }
    assert_problem(/\Ais for .*X86-64, not aarch64-linux-gnu\z/, FINE, platform: "aarch64-linux-gnu")
  end

  def test_another_ruby
    assert_problem(/\Ais compiled for Ruby 3\.4, not 4\.0\z/, FINE.sub("4.0", "3.4"))
    assert_problem(/\Ais compiled for Ruby unknown, not 4\.0\z/, FINE.sub("4.0", ""))
  end

  def test_no_library
    assert_problem(/\Ais no shared library\z/, FINE) { |path| File.write(path, "text") }
    assert_problem(/\Ais no shared library\z/, FINE) { |path| File.truncate(path, 0) }
  end

  def test_other_libraries
    assert_problem(/\Aneeds the library libresolv\.so/, FINE, "-Wl,--no-as-needed", "-lresolv")
    assert_problem(%r{\Alooks for libraries in /opt/lib\z}, FINE, "-Wl,-rpath,/opt/lib")
    assert_problem(%r{\Alooks for libraries in /opt/lib\z}, FINE, "-Wl,-rpath,/opt/lib", "-Wl,--disable-new-dtags")
  end

  def test_a_function_that_nothing_has
    source = "void io_uring_forgotten(void);\n#{FINE.sub("rb_raise();", "io_uring_forgotten();")}"
    assert_problem(/\Alacks io_uring_forgotten\z/, source)
  end

  def test_a_symbol_that_others_would_see
    assert_problem(/\Aexports io_uring_get_sqe\z/, FINE + visible("void io_uring_get_sqe(void) {}"))
  end

  def test_paths_of_the_machine
    source = FINE + visible('const char *own(void) { return "/invented/heddle/init.c"; }')
    assert_problem(%r{\Anames /invented\z}, source, paths: ["/invented"])
  end

  def test_debug_information
    assert_problem(/\Ais not stripped\z/, FINE, "-g", strip: false)
    assert_problem(/\Adoes not name its debug file\z/, FINE, strip: false)
  end

  def test_without_io_uring
    assert_problem(/\Alacks io_uring\z/, FINE.sub("uring", "epoll"))
  end

  # One gem with no fault, and one with all.
  def test_a_gem
    assert_empty problems_of_gem(NativeGem, "Copyright 2020 Jens Axboe", FINE)
    wrong = Class.new(NativeGem) do
      def spec
        super.tap do |spec|
          spec.files -= ["lib/heddle/core/native.rb"]
          spec.platform = "x86_64-linux-musl"
          spec.required_ruby_version = ">= 3.1.2"
          spec.required_rubygems_version = ">= 0"
        end
      end
    end
    found = problems_of_gem(wrong, "another's", FINE.sub("4.0", "3.4")).join("\n")
    ["its files: ", "its platform: ", "its required_ruby_version: ", "its required_rubygems_version: ",
      "lacks lib/heddle/core/native.rb", "LICENSE-liburing is not its licence",
      "lib/heddle/4.0/heddle.so is compiled for Ruby 3.4, not 4.0"].each { |problem| assert_includes found, problem }
  end

  # All that is not C is the same in both gems, so that no program runs on one of them only.
  def test_what_the_gem_has_of_the_source_gem
    NativeExtension.all.each do |extension|
      source = Gem::Specification.load(File.join(ROOT, extension.gemspec))
      spec = NativeGem.new(ROOT, extension, PLATFORM, NativeBuild::RUBIES).spec
      assert_equal source.files.grep_v(%r{\Aext/}), spec.files & source.files
      added = [*extension.licences.keys, *NativeBuild::RUBIES.map { |ruby| format(extension.library, ruby) }]
      assert_equal added, spec.files - source.files
      assert_empty spec.extensions
      assert_equal Gem::Requirement.new(">= 3.1.2", "< 4.1.dev"), spec.required_ruby_version
    end
  end

  private

  def visible(definition) = "__attribute__((visibility(\"default\"))) #{definition}\n"

  def assert_problem(pattern, ...)
    assert_match(pattern, problems(...).grep(pattern).first.to_s)
  end

  # @yieldparam path [String] of the library, to damage it
  def problems(source, *options, platform: PLATFORM, paths: [], strip: true)
    Dir.mktmpdir do |folder|
      path = library(folder, source, *options, strip: strip)
      yield path if block_given?
      NativeLibrary.new(path, NativeExtension::HEDDLE, platform: platform, ruby: "4.0", paths: paths).problems
    end
  end

  def library(folder, source, *options, strip: true)
    path = File.join(folder, "heddle.so")
    run_tool("gcc", "-shared", "-fPIC", "-fvisibility=hidden", "-o", path, "-x", "c", "-", *options, stdin_data: source)
    return path unless strip

    run_tool("objcopy", "--only-keep-debug", path, "#{path}.debug")
    run_tool("strip", "--strip-unneeded", path)
    run_tool("objcopy", "--add-gnu-debuglink=#{path}.debug", path)
    path
  end

  def run_tool(*command, **options)
    out, status = Open3.capture2e(*command, **options)
    assert_predicate status, :success?, "#{command.join(" ")}: #{out}"
  end

  # What stands in for NativeBuild.
  SmallBuild = Struct.new(:library, :terms) do
    def compile(_extension, _ruby, library, _debug)
      FileUtils.mkdir_p(File.dirname(library))
      FileUtils.cp(self.library, library)
    end

    def licence(_package) = terms
  end
  private_constant :SmallBuild

  def problems_of_gem(native, licence, source)
    Dir.mktmpdir do |folder|
      File.write("#{folder}/licence", licence)
      build = SmallBuild.new(library(folder, source), "#{folder}/licence")
      path = Gem::DefaultUserInteraction.use_ui(Gem::SilentUI.new) {
        native.new(ROOT, NativeExtension::HEDDLE, PLATFORM, ["4.0"]).build(folder, build)
      }
      NativeGem.new(ROOT, NativeExtension::HEDDLE, PLATFORM, ["4.0"]).problems(path)
    end
  end
end
