# frozen_string_literal: true

namespace :release do
  root = Rake.original_dir
  refuse = ->(problems) { raise "not ready:\n  #{problems.join("\n  ")}" if problems.any? }
  check = lambda do
    require_relative "release_check"
    ReleaseCheck.new(root)
  end
  # NATIVE_PLATFORMS and NATIVE_RUBIES make a release for tests, which cannot be published.
  folder = lambda do
    require_relative "release_folder"
    ReleaseFolder.new(root, File.join(root, "pkg/release"), platforms: NativeBuild.chosen(:PLATFORMS),
      rubies: NativeBuild.chosen(:RUBIES))
  end

  desc "List what only the owners can fill in, with the place of each"
  task :owners do
    puts check.call.placeholders, ReleaseCheck::ELSEWHERE.map { |place, what| "#{place}: #{what}" }
  end

  desc "Check that this tree may be tagged"
  task check: %i[style rbs doc package owners] do
    refuse.call(check.call.problems)
    puts "ready: `git tag --sign`, then push the tag"
  end

  desc "Check that this tree is tagged, by one of its signers; TRUSTED=origin/main: by one whom that branch names; " \
    "TAG: that this is the tag"
  task :verify do
    refuse.call(check.call.problems_of_tag(trusted: ENV.fetch("TRUSTED", "HEAD"), pushed: ENV["TAG"]))
  end

  desc "Put all that a release publishes into pkg/release, from pkg, pkg/native and pages, and say what it is"
  task collect: :pages do
    release = folder.call
    release.collect(File.join(root, "pages"))
    puts File.read("#{release.path}/#{ReleaseFolder::CHECKSUMS}"), "", File.read("#{release.path}/notes.md")
    refuse.call(release.problems)
  end

  desc "Do all that a release takes, but publish nothing"
  task dry_run: %i[verify package gem:native collect] do
    require_relative "release_push"
    push = ReleasePush.new(folder.call.paths)
    push.commands.each { |command| puts "would run: #{command.join(" ")}" }
  end
end
