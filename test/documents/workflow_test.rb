# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "open3"
require "tmpdir"
require "yaml"
require "support/matrix"

# The CI workflow tests the Rubies and backends that bin/test does, and what all workflows name exists.
class WorkflowTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  WORKFLOWS = Dir["#{ROOT}/.github/workflows/*.yml"].sort.to_h { |path| [File.basename(path), YAML.load_file(path)] }
  JOBS = WORKFLOWS.fetch("ci.yml").fetch("jobs")
  MATRIX = JOBS.fetch("test").fetch("strategy").fetch("matrix")

  def test_rubies
    assert_empty [TestMatrix::FLOOR, *TestMatrix::NEWER] - MATRIX.fetch("ruby")
    assert_includes MATRIX.fetch("ruby"), "head"
  end

  def test_arm64_without_an_emulator
    arm64 = JOBS.fetch("arm64")
    assert_match(/-arm\z/, arm64.fetch("runs-on"))
    assert_includes arm64.dig("strategy", "matrix", "backend"), "uring"
    assert_equal JOBS.fetch("test").fetch("steps").last, arm64.fetch("steps").last, "all files"
  end

  # The next Ruby's first day is no different from any other.
  def test_no_job_may_fail
    assert_empty JOBS.select { |_, job| job["continue-on-error"] }.keys
  end

  def test_backends
    assert_equal TestMatrix::BACKENDS.sort, MATRIX.fetch("backend").sort
  end

  # In a version, or in this tree.
  def test_actions
    used = jobs.flat_map { |job| [job["uses"], *job["steps"]&.map { |step| step["uses"] }] }.compact.uniq
    refute_empty used.grep(%r{\A\./})
    used.grep(%r{\A\./}).each { |path| assert_path_exists File.join(ROOT, path) }
    assert_empty used.grep_v(%r{\A(?:\./.+|[\w-]+/[\w-]+@(?:v\d+|\h{40}))\z})
  end

  # In the version that the tests stand on: a newer one may want a newer Ruby than the job has.
  def test_gems
    texts = WORKFLOWS.keys.map { |name| File.read("#{ROOT}/.github/workflows/#{name}") }
    named = texts.join.scan(/gem install ([^\s]+)/).flatten.uniq
    tested = GemVersions.of(TestMatrix::FLOOR).merge(GemVersions.of("beside"))
    refute_empty named
    named.each { |gem| assert_equal gem, [gem[/[^:]+/], tested[gem[/[^:]+/]]].join(":") }
  end

  # Whoever may move an action's tag could do all that the job may.
  def test_actions_of_jobs_that_may_do_more_than_read
    used = jobs.select { |job| job["permissions"] }.flat_map { |job| job["steps"].filter_map { |step| step["uses"] } }
    refute_empty used
    assert_empty used.grep_v(/@\h{40}\z/)
    text = File.read("#{ROOT}/.github/workflows/release.yml")
    used.each { |action| assert_match(/ #{Regexp.escape(action)} # v\d+\.\d+\.\d+$/, text) }
  end

  # A run that ended while it added the files left a draft.
  def test_a_release_is_published_once_and_with_all_files
    script = WORKFLOWS.dig("release.yml", "jobs", "publish", "steps")
      .find { |step| step["name"] == "Publish the release" }.fetch("run")
    create = "create v1.2.3 --verify-tag --title Heddle 1.2.3 --notes-file notes.md one.gem one.tar.gz SHA256SUMS"
    assert_equal [create], releases(script, "exit 1")
    assert_equal ["delete v1.2.3 --yes", create], releases(script, "echo true")
    assert_empty releases(script, "echo false")
  end

  # None may do more than it says, and none hangs for long.
  def test_permissions_and_time
    WORKFLOWS.each { |name, workflow| assert_equal({"contents" => "read"}, workflow["permissions"], name) }
    assert_empty jobs.reject { |job| job["uses"] || job["timeout-minutes"] }
    may_write = WORKFLOWS.select { |_, workflow| workflow["jobs"].values.any? { |job| job["permissions"] } }
    assert_equal ["release.yml"], may_write.keys
  end

  def test_tasks
    known = IO.popen([RbConfig.ruby, "-S", "rake", "--all", "--tasks"], chdir: ROOT, err: File::NULL, &:read)
      .scan(/^rake ([\w:]+)/).flatten
    named = jobs.flat_map { |job| job["steps"].to_a.filter_map { |step| step["run"] } }.join("\n")
      .scan(/\brake((?: [a-z_]+(?::[a-z_]+)*)+)(?=[ '\n]|\z)/).flatten.flat_map(&:split).uniq
    assert_includes named, "release:collect"
    assert_empty named - known
  end

  # The container's user is not the one whose folder it is: git refuses it, and many tests skip where it does. Without
  # git, the checkout is no repository either.
  def test_a_job_in_a_container_has_a_repository
    contained = jobs.select { |job| job["container"] }
    refute_empty contained
    contained.each do |job|
      steps = job["steps"].map { |step| step.values_at("run", "uses").compact.first }
      assert_match(/apt-get install .*\bgit$/, steps[0])
      assert_equal ["actions/checkout@v4", 'git config --global --add safe.directory "$GITHUB_WORKSPACE"'], steps[1, 2]
    end
  end

  # As `rake gem:native:again` does in there.
  def test_the_container_of_the_native_gems_may_clone_its_folder
    trust = File.read("#{ROOT}/.github/workflows/native.yml")[/git config \S+ --add safe\.directory \S+/]
    Dir.mktmpdir do |folder|
      commands = "git init -q && git commit -q --allow-empty -m m && export GIT_TEST_ASSUME_DIFFERENT_OWNER=1 && " \
        "#{trust.sub("/heddle", folder)} && git log --oneline && git clone -q . copy"
      identity = {"GIT_AUTHOR_NAME" => "t", "GIT_AUTHOR_EMAIL" => "t@t", "GIT_COMMITTER_NAME" => "t",
                  "GIT_COMMITTER_EMAIL" => "t@t"}
      said, status = Open3.capture2e({**identity, "HOME" => folder}, "sh", "-c", commands, chdir: folder)
      assert_predicate status, :success?, said
    end
  end

  # Those of the machine's own Ruby belong to root.
  def test_gems_are_installed_with_a_ruby_of_the_job
    jobs.each do |job|
      steps = job["steps"].to_a
      installs = steps.index { |step| step["run"].to_s.match?(/^ *gem install/) } or next
      assert_includes steps.first(installs).map { |step| step["uses"].to_s[/[^@]+/] }, "ruby/setup-ruby"
    end
  end

  private

  # What a step has gh do beside viewing a release, where that runs this.
  def releases(script, view)
    Dir.mktmpdir do |folder|
      FileUtils.touch(%w[one.gem one.tar.gz SHA256SUMS].map { |name| "#{folder}/#{name}" })
      File.write("#{folder}/gh", <<~SH, perm: 0o755)
        #!/bin/sh
        [ "$2" = view ] || { shift; echo "$*" >>done; exit; }
        [ "$*" = "release view v1.2.3 --json isDraft --jq .isDraft" ] && #{view}
      SH
      environment = {"PATH" => "#{folder}:#{ENV["PATH"]}", "GITHUB_REF_NAME" => "v1.2.3"}
      said, status = Open3.capture2e(environment, "bash", "-e", "-c", script, chdir: folder)
      assert_predicate status, :success?, said
      File.exist?("#{folder}/done") ? File.readlines("#{folder}/done", chomp: true) : []
    end
  end

  def jobs = WORKFLOWS.values.flat_map { |workflow| workflow.fetch("jobs").values }
end
