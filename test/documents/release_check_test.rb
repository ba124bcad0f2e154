# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "tmpdir"
require "yaml"
require_relative "../../rakelib/release_check"

runs_on rubies: :newest

# A tree is released if its changelog has the version's date, its placeholders are filled in, git has no changes to
# commit, and one of those who may sign has tagged this commit on that day.
class ReleaseCheckTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  FILES = {
    "lib/heddle/version.rb" => %(VERSION = "1.2.3"\n), "CHANGELOG.md" => "## 1.2.3 - 2030-01-31\n- one\n- two\n",
    "heddle.gemspec" => "", "README.md" => ""
  }.freeze
  GIT = %w[git -c user.name=t -c user.email=t@t].freeze

  def setup
    @folder = Dir.mktmpdir
    @keys = Dir.mktmpdir
  end

  def teardown = FileUtils.rm_rf([@folder, @keys])

  def test_a_tree_that_is_ready
    tree
    assert_empty check.problems
    tag
    assert_empty check.problems_of_tag
    assert_empty check.problems_of_tag(trusted: "main")
  end

  # Then nothing would be uncommitted.
  def test_a_folder_that_git_refuses
    tree
    ENV["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    error = assert_raises(RuntimeError) { capture_subprocess_io { check.problems } }
    assert_match(/\Agit \S+ failed in /, error.message)
  ensure
    ENV.delete("GIT_TEST_ASSUME_DIFFERENT_OWNER")
  end

  def test_trees_that_are_not_ready
    {
      {"CHANGELOG.md" => "## 1.2.3\n"} => /## 1\.2\.3 - YYYY/,
      {"CHANGELOG.md" => "## 1.2.3 - soon\n"} => /## 1\.2\.3 - YYYY/,
      {"CHANGELOG.md" => "## 1.2.2 - 2030-01-31\n"} => /## 1\.2\.3 - YYYY/,
      {"CHANGELOG.md" => "## 1.2.4 - 2030-02-31\n\n## 1.2.3 - 2030-01-31\n"} => /begin with `## 1\.2\.3/,
      {"CHANGELOG.md" => "## 1.2.3 - 2030-01-31\n- one\n  more\n"} => /one line an entry/,
      {"heddle.gemspec" => "\nhomepage https://heddle.example/source\n"} =>
        %r{\Aheddle\.gemspec:2: put your own in place of https://heddle\.example/source\z},
      {"SECURITY.md" => "to <security@heddle.example>\n"} => /SECURITY\.md:1: .* of security@heddle\.example\z/,
      {ReleaseTag::SIGNERS => "# nobody\n"} => /allowed_signers: put in the keys/
    }.each do |change, message|
      tree(change)
      assert_equal 1, check.problems.size, check.problems
      assert_match message, check.problems.first
    end
  end

  def test_git
    tree
    File.write(File.join(@folder, "more"), "")
    assert_match(/uncommitted/, check.problems.join)
    tree
    git("tag", "v1.2.3")
    assert_equal ["git: v1.2.3 is there already"], check.problems
  end

  def test_a_tag_that_is_not_signed
    tree
    assert_problem(/no tag v1\.2\.3/)
    git("tag", "v1.2.3")
    assert_problem(/without a signature/)
    git("tag", "--force", "--annotate", "--message", "m", "v1.2.3", date: "2030-01-31T12:00:00+00:00")
    assert_problem(/not signed by one of HEAD:#{Regexp.escape(ReleaseTag::SIGNERS)}/o)
  end

  def test_a_tag_of_somebody_else
    tree
    tag(key: "mallory")
    assert_problem(/not signed by one of/)
    other = FILES.merge("lib/heddle/version.rb" => %(VERSION = "1.2.4"\n), "CHANGELOG.md" => "## 1.2.4 - 2030-01-31\n")
    tree(other)
    tag
    assert_match(/no tag v1\.2\.4/, check.problems_of_tag.join)
  end

  # A second tag of a released commit, such as v1, would publish that release again under its name.
  def test_a_tag_that_is_not_the_versions
    tree
    tag
    assert_empty check.problems_of_tag(pushed: "v1.2.3")
    assert_equal ["git: v1 is not the tag of this version, which is v1.2.3"], check.problems_of_tag(pushed: "v1")
    steps = YAML.load_file("#{ROOT}/.github/workflows/release.yml").dig("jobs", "verify", "steps")
    assert_includes steps.last["run"], 'release:verify TRUSTED=origin/main TAG="$GITHUB_REF_NAME"'
  end

  def test_a_tag_of_another_day
    tree
    tag(date: "2030-02-01T00:30:00+02:00")
    assert_problem(/made on 2030-02-01; the date in CHANGELOG\.md is 2030-01-31/)
  end

  def test_a_tag_of_another_commit
    tree
    tag
    git("commit", "--quiet", "--allow-empty", "--message", "later")
    assert_problem(/is commit \h{12}, and this is \h{12}/)
  end

  # Whoever can push a tag can write any list of signers into the commit that it names.
  def test_the_signers_of_another_branch
    tree
    git("switch", "--quiet", "--create", "mallory")
    File.write(File.join(@folder, ReleaseTag::SIGNERS), signer("mallory"))
    git("commit", "--quiet", "--all", "--message", "me")
    tag(key: "mallory")
    assert_empty check.problems_of_tag
    problems = check.problems_of_tag(trusted: "main")
    assert_equal 2, problems.size, problems
    assert_match(/main does not contain v1\.2\.3/, problems.first)
    assert_match(/not signed by one of main:/, problems.last)
  end

  # This tree's changelog, too, has one line an entry.
  def test_our_changelog
    assert_empty ReleaseCheck.new(ROOT).problems.grep(/one line/)
  end

  # What the list says of other places names every gem, and the workflow's environment.
  def test_what_the_owners_fill_in_elsewhere
    text = ReleaseCheck::ELSEWHERE.to_a.join(" ")
    Dir["#{ROOT}/{,*/}*.gemspec"].each { |path| assert_includes text, File.basename(path, ".gemspec") }
    assert_match(/^    environment: release$/, File.read("#{ROOT}/.github/workflows/release.yml"))
  end

  # Each address of a gem is a text of its own: where the owners' files lie does not follow from their homepage.
  def test_every_address_of_a_gem_is_listed
    specs = Dir.glob("{,*/}*.gemspec", base: ROOT).to_h { |path| [path, File.read(File.join(ROOT, path))] }
    tree(specs)
    listed = specs.keys.flat_map do |path|
      spec = Gem::Specification.load(File.join(ROOT, path))
      addresses = [spec.homepage, *spec.metadata.values].grep(/heddle\.example/)
      addresses.map { |address| "#{path}: #{address}" }
    end
    assert_empty listed - check.placeholders.map { |line| line.sub(/:\d+: .* /, ": ") }
  end

  # With this tree's own files, as somebody would release it: filled in, dated, tagged.
  def test_the_task
    files = IO.popen(%w[git ls-files -z --cached --others --exclude-standard], chdir: ROOT, err: File::NULL, &:read)
    skip "this is no checkout of the repository" if files.empty?

    tree(files.split("\0").select { |file| file != ReleaseTag::SIGNERS && File.file?(File.join(ROOT, file)) }
      .to_h { |file| [file, File.binread(File.join(ROOT, file)).then { |text| released(file, text) }] })
    said, status = rake("release:verify")
    refute_predicate status, :success?
    assert_match(/not ready:\n  git: there is no tag v#{version}: `git tag --sign/, said)
    tag(name: "v#{version}")
    said, status = rake("release:verify")
    assert_predicate status, :success?, said
  end

  private

  def version = File.read("#{ROOT}/lib/heddle/version.rb")[/"(.+)"/, 1]

  def released(file, text)
    return text if file.start_with?("rakelib/", "test/")

    text = text.gsub("heddle.example".b, "example.org".b)
    (file == "CHANGELOG.md") ? text.sub(/^## #{Regexp.escape(version)}.*/n, "## #{version} - 2030-01-31") : text
  end

  def check = ReleaseCheck.new(@folder)

  def assert_problem(pattern)
    assert_equal 1, check.problems_of_tag.size, check.problems_of_tag
    assert_match pattern, check.problems_of_tag.first
  end

  def tree(change = {})
    FileUtils.rm_rf(Dir.children(@folder).map { |child| File.join(@folder, child) })
    {**FILES, ReleaseTag::SIGNERS => signer("owner"), **change}.each do |path, text|
      FileUtils.mkdir_p(File.dirname(File.join(@folder, path)))
      File.binwrite(File.join(@folder, path), text)
    end
    git("init", "--quiet", "--initial-branch", "main")
    git("add", ".")
    git("commit", "--quiet", "--message", "all")
  end

  def tag(key: "owner", date: "2030-01-31T12:00:00+00:00", name: "v1.2.3")
    signer(key)
    git("-c", "gpg.format=ssh", "-c", "user.signingkey=#{@keys}/#{key}", "tag", "--sign", "--message", "m", name,
      date: date)
  end

  # @return [String] a line of the list of signers
  def signer(key)
    unless File.exist?("#{@keys}/#{key}")
      assert system("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "#{@keys}/#{key}"), "openssh-client is missing"
    end
    "#{key}@example.org #{File.read("#{@keys}/#{key}.pub")}"
  end

  def git(*arguments, date: nil)
    said, status = Open3.capture2e({"GIT_COMMITTER_DATE" => date}, *GIT, *arguments, chdir: @folder)
    assert_predicate status, :success?, said
  end

  def rake(*tasks)
    Open3.capture2e(RbConfig.ruby, "-S", "rake", *tasks, chdir: @folder)
  end
end
