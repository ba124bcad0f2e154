# frozen_string_literal: true

require "test_helper"
require "etc"
require "fileutils"
require "open3"
require "tmpdir"

# script/setup.sh compiles before a command of bin/ only after a change. `rake clean` removes what was compiled.
class SetupTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  SOURCES = %w[ext/heddle/a.c odbc/ext/a.c lab/ext/server/main.c rakelib/compile.rake Rakefile script/setup.sh].freeze
  MADE = %w[lib/heddle/3.1/heddle.so lab/ext/server/heddle-server].freeze
  # In place of Rake.
  COMPILE = <<~SH
    set -eu
    . #{ROOT}/script/setup.sh
    with_progress() { echo "$1"; touch #{MADE.map { |path| "$tree/#{path}" }.join(" ")}; }
    compile 3.1
  SH
  INSTALL = <<~SH
    set -eu
    . #{ROOT}/script/setup.sh
    policy=$tree/policy-rc.d
    as_root() { "$@"; }
    may_be_root() { true; }
    install_packages first second
  SH

  def setup
    @tree = Dir.mktmpdir
    SOURCES.each { |path| write(path, Time.now - 60) }
    MADE.each { |path| FileUtils.mkdir_p(File.dirname(File.join(@tree, path))) }
  end

  def teardown = FileUtils.rm_rf(@tree)

  def test_what_has_not_changed_is_not_compiled_again
    assert_equal "compiling for Ruby 3.1\n", compiled
    2.times { assert_empty compiled }
  end

  def test_a_change_is_compiled
    compiled
    SOURCES.each do |path|
      write(path, Time.now + 1)
      assert_equal "compiling for Ruby 3.1\n", compiled, path
      write(path, Time.now - 60)
      compiled # after the change of a folder, if it was one
    end
    FileUtils.rm(File.join(@tree, MADE.first))
    refute_empty compiled
    FileUtils.rm(File.join(@tree, "ext/heddle/a.c"))
    File.utime(Time.now + 1, Time.now + 1, File.join(@tree, "ext/heddle"))
    refute_empty compiled
  end

  def test_a_failure_is_tried_again
    failing = COMPILE.sub(/^with_progress.*/, "with_progress() { return 1; }")
    refute system({"tree" => @tree}, "bash", "-c", failing)
    refute_empty compiled
  end

  def test_two_runs_at_once_compile_once
    slow = COMPILE.sub("$1\"; ", '\0sleep 0.5; ')
    refute_equal COMPILE, slow
    runs = Array.new(2) { Thread.new { Open3.capture2e({"tree" => @tree}, "bash", "-c", slow) } }.map(&:value)
    assert_equal ["", "compiling for Ruby 3.1\n"], runs.map(&:first).sort
    assert_equal [true], runs.map { |_, status| status.success? }.uniq
  end

  # With what keeps daemons from starting, another package's never would.
  def test_packages_that_are_not_installed_to_the_end_leave_nothing
    %w[INT TERM HUP].each do |signal|
      with_debian("touch $tree/began; exec sleep 60") do |environment|
        pid = Process.spawn(environment, "bash", "-c", INSTALL, pgroup: true, out: File::NULL, err: File::NULL)
        wait_until(what: "apt-get") { File.exist?("#{@tree}/began") }
        assert_path_exists "#{@tree}/policy-rc.d"
        Process.kill(signal, -pid)
        refute_predicate Process.wait2(pid).last, :success?
        wait_until(what: "no policy") { !File.exist?("#{@tree}/policy-rc.d") && Dir.empty?("#{@tree}/temporary") }
        FileUtils.rm("#{@tree}/began")
      end
    end
  end

  def test_packages_are_installed_by_one_run_after_the_other
    with_debian("[ -x $tree/policy-rc.d ] && mkdir $tree/lock && sleep 0.3 && rmdir $tree/lock") do |environment|
      runs = Array.new(2) { Thread.new { Open3.capture2e(environment, "bash", "-c", INSTALL) } }.map(&:value)
      runs.each { |out, status| assert_predicate status, :success?, out }
      refute_path_exists "#{@tree}/policy-rc.d"
    end
  end

  def test_the_bundles_stay
    bundles = %w[bundle bundle-compatibility newest newest-compatibility]
    [*bundles, RUBY_PLATFORM].each { |name| FileUtils.mkdir_p("#{@tree}/tmp/#{name}") }
    rake = [RbConfig.ruby, "-S", "rake", "--quiet", "--rakefile", "#{ROOT}/Rakefile", "--directory", @tree]
    said, status = Open3.capture2e(*rake, "clean")
    assert_predicate status, :success?, said
    assert_equal bundles, Dir.children("#{@tree}/tmp").sort
  end

  # Where nothing can be installed because the machine is no Debian.
  def test_a_machine_without_a_ruby_says_so
    Dir.mktmpdir do |programs|
      %w[bash dirname env grep].each { |name| File.symlink(`which #{name}`.chomp, "#{programs}/#{name}") }
      [%w[bin/try], %w[bin/heddle --version], %w[bin/setup], %w[bin/test]].each do |command, *arguments|
        said, status = Open3.capture2e({"PATH" => programs}, "#{ROOT}/#{command}", *arguments)
        assert_equal ["setup: there is no Ruby on PATH: install Ruby and a C compiler\n", 69],
          [said, status.exitstatus], command
      end
    end
  end

  def test_the_home_is_known_without_a_variable
    home = Etc.getpwuid.dir
    said, = Open3.capture2e({"tree" => @tree, "HOME" => nil, "XDG_CACHE_HOME" => nil}, "bash", "-c",
      "set -eu; . #{ROOT}/script/setup.sh; echo $heddle_cache; env | grep ^HOME=")
    assert_equal "#{home}/.cache/heddle\nHOME=#{home}\n", said
  end

  # ruby-install and rbenv keep previews beside releases.
  def test_the_newest_ruby_is_no_preview
    %w[9.9.0-preview2 9.9.0 9.9.0-rc1].each do |version|
      path = "#{@tree}/a home/.rubies/ruby-#{version}/bin/ruby"
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, "#!/bin/sh\necho 9.9\n", perm: 0o755)
    end
    environment = {"HOME" => "#{@tree}/a home", "XDG_CACHE_HOME" => nil}
    out, status = Open3.capture2e(environment, "#{ROOT}/script/with-ruby", "9.9", "sh", "-c", "command -v ruby")
    assert_predicate status, :success?, out
    assert_equal "#{@tree}/a home/.rubies/ruby-9.9.0/bin/ruby\n", out
  ensure
    FileUtils.rm_rf("#{ROOT}/tmp/bundle/9.9")
  end

  private

  # Yields the environment of a Debian without the packages, whose apt-get does this.
  def with_debian(apt_get)
    Dir.mktmpdir do |programs|
      {"dpkg-query" => "exit 1", "apt-get" => apt_get}.each do |name, script|
        File.write("#{programs}/#{name}", "#!/bin/sh\n#{script}\n", perm: 0o755)
      end
      FileUtils.mkdir_p("#{@tree}/temporary")
      yield({"tree" => @tree, "PATH" => "#{programs}:#{ENV["PATH"]}", "TMPDIR" => "#{@tree}/temporary"})
    end
  end

  def write(path, time)
    path = File.join(@tree, path)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, "")
    File.utime(time, time, path)
  end

  def compiled
    out, status = Open3.capture2e({"tree" => @tree}, "bash", "-c", COMPILE)
    assert_predicate status, :success?, out
    out
  end
end
