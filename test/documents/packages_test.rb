# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "tmpdir"
require "yaml"
require_relative "../../rakelib/context"

# The gems contain the files that the repository has for them.
class PackagesTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)

  def test_heddle
    assert_packed "heddle.gemspec", %w[lib ext sig guides], %w[bigdecimal]
  end

  def test_heddle_lab
    assert_packed "lab/heddle-lab.gemspec", %w[lab/lib lab/ext lab/exe], %w[heddle]
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
        "`gem install heddle --platform ruby` compiles it for this system, as Bundler does after " \
        "`bundle config set force_ruby_platform true`; that takes a C compiler (LoadError)"
    end
  end

  def test_compiled_code_that_does_not_load_says_why
    with_library do |folder|
      FileUtils.mkdir_p("#{folder}/lib/heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}")
      File.write("#{folder}/lib/heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}/heddle.so", "code of another machine")
      assert_match(/compiled code does not load in Ruby #{RUBY_VERSION} on \S+ \(.*heddle\.so.*\): `gem install/o,
        error_in(folder))
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

  def error_in(folder)
    command = [RbConfig.ruby, "--disable=gems", "-I#{folder}/lib", "-e", "require 'heddle'"]
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
    assert_equal dependencies, dependencies & spec.runtime_dependencies.map(&:name)
  end
end
