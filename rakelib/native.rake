# frozen_string_literal: true

# Gems for which nothing is compiled where they are installed. NATIVE_PLATFORMS and NATIVE_RUBIES choose some of all:
# such a gem is for tests. It has no code for the other Rubies, and may not be released.
require_relative "native_gem"

namespace :gem do
  root = Rake.original_dir
  list = ->(name, all) { ENV.key?(name) ? ENV[name].split(/[ ,]+/) : all }
  platforms = -> { list.call("NATIVE_PLATFORMS", %w[x86_64-linux-gnu aarch64-linux-gnu]) }
  date = -> { ENV["SOURCE_DATE_EPOCH"] ||= IO.popen(%w[git log -1 --format=%ct], chdir: root, &:read).chomp }
  make = lambda do |folder, platform|
    build = NativeBuild.new(root, platform)
    rubies = list.call("NATIVE_RUBIES", NativeBuild::RUBIES)
    missing = rubies - build.rubies
    unless missing.empty?
      raise "#{platform}: no headers here of Ruby #{missing.join(", ")}. NATIVE_RUBIES=#{(rubies - missing).join(",")} " \
        "makes a gem without it, for tests"
    end
    native = NativeGem.new(root, platform, rubies)
    [native, build, native.build(folder, build)]
  end

  desc "Build gems with compiled code into pkg/native, and check them"
  task native: :context do
    date.call
    platforms.call.each do |platform|
      native, build, path = make.call("pkg/native", platform)
      problems = native.problems(path, paths: build.paths)
      raise "#{path}:\n  #{problems.join("\n  ")}" unless problems.empty?
      puts path
    end
  end

  namespace :native do
    desc "Build the gems with compiled code again, from a copy of this tree: they must be the same bytes"
    task again: :context do
      date.call
      platforms.call.each do |platform|
        first = Dir["pkg/native/heddle-*-#{platform}.gem"].first or raise "`rake gem:native` first"
        Dir.mktmpdir do |folder|
          copy = "#{folder}/heddle"
          sh "git", "clone", "--quiet", root, copy, verbose: false
          sh({"NATIVE_PLATFORMS" => platform}, RbConfig.ruby, "-S", "rake", "gem:native", chdir: copy, verbose: false)
          second = "#{copy}/#{first}"
          raise "#{first} differs when it is built in another folder" unless FileUtils.identical?(first, second)
        end
      end
    end
  end
end
