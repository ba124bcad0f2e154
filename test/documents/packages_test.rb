# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "rubygems/package"
require "rubygems/user_interaction"
require "tmpdir"
require "yaml"
require_relative "../../rakelib/context"
require_relative "../../rakelib/native_gem"

# The gems contain the files that the repository has for them.
class PackagesTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)

  # Without dependencies: its gems with compiled code need no compiler where one of those would (doc/adr/0058).
  def test_heddle
    assert_packed "heddle.gemspec", %w[lib ext exe sig guides], []
  end

  def test_heddle_lab
    assert_packed "lab/heddle-lab.gemspec", %w[lab/lib lab/ext], %w[heddle]
  end

  def test_heddle_odbc
    assert_packed "odbc/heddle-odbc.gemspec", %w[odbc/lib odbc/ext odbc/sig], %w[heddle]
  end

  def test_llms_txt_is_fresh
    assert_equal Context.new(ROOT).index, File.read(File.join(ROOT, "llms.txt")), "run `rake context`"
  end

  # What agent-context finds in a gem.
  def test_the_context_has_every_guide
    Dir.mktmpdir do |folder|
      Context.new(ROOT).write(context = File.join(folder, "context"))
      files = YAML.load_file(File.join(context, "index.yaml")).fetch("files")
      assert_equal Dir.children(File.join(ROOT, "guides")).sort, files.map { |file| file.fetch("path") }.sort
      texts = files.map { |file| File.read(File.join(context, file.fetch("path"))) }
      assert_empty texts.flat_map { |text| text.scan(%r{\]\((\.\./[^)]*)\)}) }, "links out of the folder"
    end
  end

  # mkmf writes conftest.c beside extconf.rb where the gem is built in its own folder, as `gem install` does.
  def test_what_a_killed_build_leaves_is_compiled_into_no_other
    # mkmf itself finds no sources in a folder with such a name.
    {"ext/heddle" => "gems[1]", "odbc/ext/heddle_odbc" => "gems"}.each do |extension, name|
      Dir.mktmpdir do |place|
        gem = File.join(place, name)
        supported = "lib/heddle/core/supported_ruby.rb"
        folder = File.join(gem, extension)
        [folder, File.dirname("#{gem}/#{supported}")].each { |path| FileUtils.mkdir_p(path) }
        FileUtils.cp("#{ROOT}/#{supported}", "#{gem}/#{supported}")
        FileUtils.cp_r("#{ROOT}/#{extension}/.", folder)
        File.write("#{folder}/conftest.c", "int main(void) { return 1; }\n")
        out, status = Open3.capture2e(RbConfig.ruby, "extconf.rb", chdir: folder)
        assert_predicate status, :success?, out
        assert_empty File.read("#{folder}/Makefile").scan(/conftest\.[co]/), extension
      end
    end
  end

  # A user of a checkout with another Ruby than it was compiled for.
  def test_a_checkout_that_is_not_compiled_says_so
    with_library do |folder|
      FileUtils.mkdir_p("#{folder}/ext/heddle")
      FileUtils.touch("#{folder}/ext/heddle/extconf.rb")
      assert_includes error_in(folder), "heddle is not compiled for Ruby #{RUBY_VERSION}: with this Ruby, run " \
        "`bundle exec rake compile` in a checkout, or `gem pristine heddle` (LoadError)"
    end
  end

  # A gem with compiled code has no C: it can be compiled only from the source gem.
  def test_a_gem_without_code_for_this_ruby_says_so
    with_library do |folder|
      assert_includes error_in(folder), "heddle is not compiled for Ruby #{RUBY_VERSION}: " \
        "`gem uninstall -aIx heddle && gem install heddle --platform ruby` compiles it for this system, as Bundler " \
        "does after `bundle config set force_ruby_platform true`; that takes a C compiler (LoadError)"
    end
  end

  def test_compiled_code_that_does_not_load_says_why
    with_library do |folder|
      FileUtils.mkdir_p("#{folder}/lib/heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}")
      File.write("#{folder}/lib/heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}/heddle.so", "code of another machine")
      assert_match(/compiled code does not load in Ruby #{RUBY_VERSION} on \S+ \(.*heddle\.so.*\): `gem uninstall/o,
        error_in(folder))
    end
  end

  def test_compiled_code_of_another_user_says_so
    launcher = Process.uid.zero? ? %w[setpriv --reuid 65534 --clear-groups] : []
    skip "nobody else may run this Ruby" unless system(*launcher, RbConfig.ruby, "--version", out: File::NULL)
    with_library do |folder|
      File.chmod(0o755, folder)
      file = "#{folder}/lib/heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}/heddle.so"
      FileUtils.mkdir_p(File.dirname(file))
      File.write(file, "", perm: 0)
      assert_includes error_in(folder, launcher), "this user may not read #{file}: chmod a+r mends it (LoadError)"
    end
  end

  # Of two gems of one version, RubyGems takes that with compiled code, also where its code is of no use.
  def test_what_it_says_mends_it
    skip "this RubyGems takes the source gem" unless NativeGem::RUBYGEMS.satisfied_by?(Gem.rubygems_version)
    with_library do |folder|
      build_gem(folder, Gem::Platform.local.to_s)
      gems = "#{folder}/gems"
      File.write("#{folder}/gemrc", "install: --local --no-document\n")
      environment = ENV.keys.grep(/\A(?:BUNDLER?_|RUBY(?:OPT|LIB)\z)/).to_h { |name| [name, nil] }
        .merge("GEM_HOME" => gems, "GEM_PATH" => gems, "GEMRC" => "#{folder}/gemrc")
      try = ->(command) { Open3.capture2e(environment, "sh", "-c", command, chdir: folder) }
      said, status = try.call("gem install heddle && ruby -e 'require \"heddle\"'")
      refute_predicate status, :success?, said
      FileUtils.rm(Dir["#{folder}/*.gem"])
      File.write("#{folder}/lib/heddle.rb", "puts 'compiled here'")
      build_gem(folder, "ruby")
      said, status = try.call("#{said[/`(gem .*?)`/m, 1]} && ruby -e 'require \"heddle\"'")
      assert_predicate status, :success?, said
      assert_equal "compiled here", said.lines(chomp: true).last
    end
  end

  # Neither compiles, nor has what the sources stand on.
  UNSUPPORTED = {
    "RUBY_ENGINE = 'jruby'" => /\Aheddle is C code .* cannot run in jruby: run this program with CRuby/,
    "RUBY_ENGINE = 'truffleruby'" => /\Aheddle is C code .* cannot run in truffleruby: run this program with CRuby/,
    "RUBY_PLATFORM = 'x64-mingw-ucrt'" => /\Aheddle needs a POSIX system, .* for Windows: run this program in WSL/
  }.freeze

  def test_what_cannot_run_heddle_says_so_as_it_installs_and_loads
    UNSUPPORTED.each do |constant, sentence|
      stub = "$VERBOSE = nil; #{constant}; begin; load ARGV.first; rescue LoadError => error; abort error.message; end"
      ["ext/heddle/extconf.rb", "lib/heddle.rb"].each do |path|
        Dir.mktmpdir do |folder|
          said, status = Open3.capture2e(RbConfig.ruby, "-e", stub, File.join(ROOT, path), chdir: folder)
          refute_predicate status, :success?
          assert_match sentence, said
          assert_equal 1, said.lines.size, said
          assert_empty Dir.children(folder)
        end
      end
    end
  end

  private

  # Yields a folder with a copy of lib, without compiled code.
  def with_library
    Dir.mktmpdir do |folder|
      sources = Dir.glob("lib/**/*.rb", base: ROOT)
      sources.map { |path| File.dirname(path) }.uniq.each { |path| FileUtils.mkdir_p(File.join(folder, path)) }
      sources.each { |path| FileUtils.cp(File.join(ROOT, path), File.join(folder, path)) }
      yield folder
    end
  end

  def build_gem(folder, platform)
    spec = Gem::Specification.new("heddle", "0.1.0") do |gem|
      gem.platform = platform
      gem.summary = gem.author = "heddle"
      gem.files = Dir.glob("lib/**/*.rb", base: folder)
    end
    Gem::DefaultUserInteraction.use_ui(Gem::SilentUI.new) { Dir.chdir(folder) { Gem::Package.build(spec, true) } }
  end

  def error_in(folder, launcher = [])
    command = [*launcher, RbConfig.ruby, "--disable=gems", "-I#{folder}/lib", "-e", "require 'heddle'"]
    said, status = Open3.capture2e({"RUBYOPT" => nil, "RUBYLIB" => nil, "HEDDLE_NATIVE_DIR" => nil}, *command)
    refute_predicate status, :success?
    said
  end

  # Neither compiled code nor files that git ignores are expected.
  def assert_packed(path, folders, dependencies)
    spec = Gem::Specification.load(File.join(ROOT, path))
    tracked = Dir.chdir(ROOT) {
      IO.popen(["git", "ls-files", "-z", *folders], err: File::NULL) { |list| list.read.split("\0") }
    }
    skip "this is no checkout of the repository" if tracked.empty?

    tracked.map! { |file| file.delete_prefix("#{File.dirname(path)}/") }
    tracked -= ["ext/server/.gitignore"] # for developers of the gem
    assert_empty tracked - spec.files, "is missing"
    assert_empty spec.files.grep(/\.so\z|\.o\z|\.rbc\z/)
    assert_empty %w[LICENSE README.md] - spec.files
    assert_empty spec.runtime_dependencies.select { |dependency| dependency.requirement.none? }, "without a bound"
    assert_empty %w[source_code_uri changelog_uri documentation_uri] - spec.metadata.keys
    assert spec.homepage
    assert_equal dependencies, spec.runtime_dependencies.map(&:name)
  end
end
