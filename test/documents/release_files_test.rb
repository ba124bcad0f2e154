# frozen_string_literal: true

require "test_helper"
require "digest"
require "fileutils"
require "open3"
require "rubygems/user_interaction"
require "socket"
require "tmpdir"
require_relative "../../rakelib/release_folder"
require_relative "../../rakelib/release_push"

runs_on rubies: :newest # whose RubyGems tells C libraries apart

# What a release publishes: all gems, with all Rubies in them, their checksums, and notes that CHANGELOG.md says.
class ReleaseFilesTest < Minitest::Test
  PLATFORMS = NativeBuild::PLATFORMS
  CHANGELOG = <<~TEXT
    # Changelog

    The format is that of some page.

    ## 1.2.3 - 2030-01-31

    ### Added

    - One thing, of [the guide](guides/puma.md#limits).
    - Another, of [a page](https://example.org/page).

    ## 1.2 - 2029-01-31

    - An old thing.
  TEXT

  def setup
    @root = Dir.mktmpdir
    FileUtils.mkdir_p(["pkg/native/debug/x86_64-linux-gnu/4.0", "pages"].map { |path| File.join(@root, path) })
    write("heddle.gemspec", <<~RUBY)
      Gem::Specification.new("heddle", "1.2.3") do |spec|
        spec.metadata["changelog_uri"] = "https://example.org/files/CHANGELOG.md"
      end
    RUBY
    write("CHANGELOG.md", CHANGELOG)
    write("pages/index.html", "pages")
    write("pkg/native/debug/x86_64-linux-gnu/4.0/heddle.so.debug", "debug")
    %w[heddle heddle-odbc heddle-lab].each { |name| FileUtils.mv(gem(name), path("pkg/#{name}.gem")) }
    PLATFORMS.product(NativeExtension.all) { |platform, extension| native(extension, platform) }
  end

  def teardown = FileUtils.rm_rf(@root)

  def test_notes
    notes = ReleaseNotes.new(CHANGELOG, "1.2.3")
    assert_equal "2030-01-31", notes.date
    assert_equal <<~TEXT, notes.text("https://example.org/source")
      ### Added

      - One thing, of [the guide](https://example.org/source/guides/puma.md#limits).
      - Another, of [a page](https://example.org/page).
    TEXT
    assert_equal "- An old thing.\n", ReleaseNotes.new(CHANGELOG, "1.2").text("")
  end

  # A prefix of a version is another version, and a date belongs to the newest one only.
  def test_no_notes
    ["1", "1.2.4", "1.2.3 - 2030-01-31", ".*"].each do |version|
      notes = ReleaseNotes.new(CHANGELOG, version)
      assert_nil notes.date
      assert_match(/says nothing of/, assert_raises(RuntimeError) { notes.text("") }.message)
    end
    assert_nil ReleaseNotes.new(CHANGELOG, "1.2").date
    assert_raises(RuntimeError) { ReleaseNotes.new("# C\n\n## 1.2.3 - 2030-01-31\n\n## 1.2\n- a\n", "1.2.3").text("") }
  end

  def test_a_complete_release
    folder = collect
    assert_empty folder.problems
    assert_equal ["heddle-1.2.3.gem", *PLATFORMS.map { |platform| "heddle-1.2.3-#{platform}.gem" },
      "heddle-odbc-1.2.3.gem", *PLATFORMS.map { |platform| "heddle-odbc-1.2.3-#{platform}.gem" },
      "heddle-lab-1.2.3.gem"], folder.gems
    said, status = Open3.capture2e("sha256sum", "--check", "--strict", "SHA256SUMS", chdir: folder.path)
    assert_predicate status, :success?, said
    assert_equal [*folder.gems, "heddle-1.2.3-debug.tar.gz"].sort, said.scan(/^(.+): OK$/).flatten.sort
    assert_equal "pages", File.read("#{folder.path}/site/index.html")
    assert_includes File.read("#{folder.path}/notes.md"), "(https://example.org/files/guides/puma.md#limits)"
    listed, = Open3.capture2("tar", "--list", "--file", "#{folder.path}/heddle-1.2.3-debug.tar.gz")
    assert_includes listed.lines(chomp: true), "debug/x86_64-linux-gnu/4.0/heddle.so.debug"
  end

  def test_the_same_files_make_the_same_bytes
    first = File.read("#{collect.path}/SHA256SUMS")
    FileUtils.touch(path("pkg/native/debug/x86_64-linux-gnu/4.0/heddle.so.debug"), mtime: Time.at(0))
    assert_equal first, File.read("#{collect.path}/SHA256SUMS")
  end

  def test_an_archive_that_cannot_be_written
    programs = ENV["PATH"]
    write("gzip", "#!/bin/sh\nexit 1\n")
    write("pkg/native/debug/large", "a" * (1 << 20)) # more than a pipe holds
    File.chmod(0o755, path("gzip"))
    ENV["PATH"] = "#{@root}:#{programs}"
    assert_match(/debug\.tar\.gz: tar or gzip failed/, assert_raises(RuntimeError) { collect }.message)
  ensure
    ENV["PATH"] = programs
  end

  def test_what_is_left_of_another_version_is_not_released
    FileUtils.mv(gem("heddle", version: "1.2.2"), path("pkg/native/heddle-1.2.2-x86_64-linux-gnu.gem"))
    assert_empty collect.problems
  end

  def test_an_incomplete_release
    assert_match(/is not there: `rake release:collect`/, ReleaseFolder.new(@root, path("none")).problems.first)
    FileUtils.rm(path("pkg/native/heddle-1.2.3-aarch64-linux-gnu.gem"))
    FileUtils.mv(gem("heddle-lab", version: "1.2.2"), path("pkg/heddle-lab.gem"))
    native(NativeExtension::HEDDLE, "x86_64-linux-gnu", NativeBuild::RUBIES - ["3.2"])
    assert_equal ["heddle-1.2.3-aarch64-linux-gnu.gem is not there", "heddle-lab-1.2.3.gem is not there",
      "heddle-lab-1.2.2.gem is no gem of this release", "heddle-1.2.3-x86_64-linux-gnu.gem has no code for Ruby 3.2"],
      collect.problems
  end

  def test_a_release_for_tests
    FileUtils.rm(Dir[path("pkg/native/*-aarch64-linux-gnu.gem")])
    native(NativeExtension::HEDDLE, "x86_64-linux-gnu", ["4.0"])
    native(NativeExtension::ODBC, "x86_64-linux-gnu", ["4.0"])
    some = ReleaseFolder.new(@root, path("pkg/release"), platforms: ["x86_64-linux-gnu"], rubies: ["4.0"])
    some.collect(path("pages"))
    assert_empty some.problems
    assert_equal 10, ReleasePush.new(some.paths).commands.size # two a gem
    refute_empty ReleaseFolder.new(@root, path("pkg/release")).problems
  end

  def test_publishing
    gems = [path("pkg/heddle.gem"), path("pkg/native/heddle-1.2.3-x86_64-linux-gnu.gem")]
    sign = gems.map { |gem| %W[gem exec sigstore-cli:0.2.3 sign #{gem} --bundle #{gem}.sigstore.json] }
    asked = with_registry({"ruby" => Digest::SHA256.file(gems.first).hexdigest}) do |registry|
      commands = []
      said = ReleasePush.new(gems, registry: registry).run { |command| commands << command }
      assert_equal ["heddle.gem: was published before", "heddle-1.2.3-x86_64-linux-gnu.gem: published"], said
      push = %W[gem push #{gems.last} --host #{registry} --attestation #{gems.last}.sigstore.json]
      assert_equal [*sign, push], commands
    end
    assert_equal %w[ruby x86_64-linux-gnu].map { |platform|
      "/api/v2/rubygems/heddle/versions/1.2.3.json?platform=#{platform}"
    }, asked
  end

  def test_publishing_other_bytes_under_the_same_name
    with_registry({"ruby" => "0" * 64}) do |registry|
      push = ReleasePush.new([path("pkg/heddle.gem")], registry: registry)
      error = assert_raises(RuntimeError) { push.run { flunk } }
      assert_match(/heddle\.gem is published with other bytes/, error.message)
    end
  end

  def test_publishing_to_a_registry_that_fails
    with_registry({"ruby" => nil}) do |registry|
      push = ReleasePush.new([path("pkg/heddle.gem")], registry: registry)
      error = assert_raises(RuntimeError) { push.run { flunk } }
      assert_match(/versions.*: 500 /, error.message)
    end
  end

  # And without a gem such as rake beside the identity that signs.
  def test_the_script_publishes_in_the_workflow_only_and_what_is_complete
    {nil => /\Aonly the workflow/, "http://127.0.0.1" => /\Anot ready:\n  \S+none is not there/}.each do |url, message|
      environment = {"ACTIONS_ID_TOKEN_REQUEST_URL" => url, "RUBYOPT" => nil}
      said, status = Open3.capture2e(environment, RbConfig.ruby, "-e", <<~RUBY, path("none"))
        at_exit { puts "Rake: #{defined?(Rake).inspect}" }
        load "#{File.expand_path("../../script/publish-gems", __dir__)}"
      RUBY
      refute_predicate status, :success?
      assert_match message, said
      assert_includes said, "Rake: nil"
    end
  end

  # `gem push` has the option since RubyGems 3.6.
  def test_what_gem_push_takes
    said, = Open3.capture2e(RbConfig.ruby, "-S", "gem", "push", "--help")
    assert_includes said, "--attestation FILE"
  end

  private

  def path(name) = File.join(@root, name)

  def write(name, text) = File.write(path(name), text)

  def collect = ReleaseFolder.new(@root, path("pkg/release")).tap { |folder| folder.collect(path("pages")) }

  def native(extension, platform, rubies = NativeBuild::RUBIES)
    name = File.basename(extension.gemspec, ".gemspec")
    file = gem(name, platform: platform, files: rubies.map { |ruby| format(extension.library, ruby) })
    FileUtils.mv(file, path("pkg/native"))
  end

  def gem(name, version: "1.2.3", platform: "ruby", files: [])
    spec = Gem::Specification.new(name, version) do |one|
      one.platform = platform
      one.files = files
      one.summary = name
      one.authors = [name]
    end
    files.each do |file|
      FileUtils.mkdir_p(File.dirname(path(file)))
      write(file, "")
    end
    Gem::DefaultUserInteraction.use_ui(Gem::SilentUI.new) do
      Dir.chdir(@root) { Gem::Package.build(spec, true, false, spec.file_name) }
    end
    path(spec.file_name)
  end

  # Yields the address of a registry that has these checksums, by platform; nil is an error. Returns what it was asked.
  def with_registry(checksums)
    asked = []
    server = TCPServer.new("127.0.0.1", 0)
    thread = Thread.new { loop { serve(server.accept, checksums, asked) } }
    yield "http://127.0.0.1:#{server.addr[1]}"
    asked
  ensure
    thread&.kill&.join
    server&.close
  end

  def serve(peer, checksums, asked)
    asked << (target = peer.gets[/ (\S+) /, 1])
    nil until peer.gets == "\r\n"
    checksum = checksums.fetch(target[/platform=(.+)/, 1]) { return peer.write("HTTP/1.1 404 Not Found\r\n\r\n") }
    peer.write(checksum ? %(HTTP/1.0 200 OK\r\n\r\n{"sha":"#{checksum}"}) : "HTTP/1.0 500 Broken\r\n\r\n")
  ensure
    peer.close
  end
end
