# frozen_string_literal: true

# Gems for which nothing is compiled where they are installed. NATIVE_PLATFORMS and NATIVE_RUBIES choose some of all:
# such a gem is for tests. It has no code for the other Rubies, and may not be released.
require_relative "native_gem"

namespace :gem do
  root = Rake.original_dir
  platforms = -> { NativeBuild.chosen(:PLATFORMS) }
  rubies = lambda do |build|
    wanted = NativeBuild.chosen(:RUBIES)
    missing = wanted - build.rubies
    next wanted if missing.empty?

    raise "#{build.platform}: no headers here of Ruby #{missing.join(", ")}. " \
      "NATIVE_RUBIES=#{(wanted - missing).join(",")} makes gems without it, for tests"
  end

  desc "Build gems with compiled code into pkg/native, and check them"
  task native: %i[context source_date] do
    platforms.call.product(NativeExtension.all) do |platform, extension|
      build = NativeBuild.new(root, platform)
      native = NativeGem.new(root, extension, platform, rubies.call(build))
      path = native.build("pkg/native", build)
      problems = native.problems(path, paths: build.paths)
      raise "#{path}:\n  #{problems.join("\n  ")}" unless problems.empty?
    end
  end

  namespace :native do
    desc "Build the gems with compiled code again, from a copy of this tree: they must be the same bytes"
    task again: %i[context source_date] do
      platforms.call.each do |platform|
        first = Dir["pkg/native/*-#{platform}.gem"]
        raise "`rake gem:native` first" if first.empty?

        Dir.mktmpdir do |folder|
          copy = "#{folder}/heddle"
          sh "git", "clone", "--quiet", root, copy, verbose: false
          sh({"NATIVE_PLATFORMS" => platform}, RbConfig.ruby, "-S", "rake", "gem:native", chdir: copy, verbose: false)
          different = first.reject { |path| FileUtils.identical?(path, File.join(copy, path)) }
          raise "built in another folder, other bytes: #{different.join(", ")}" unless different.empty?
        end
      end
    end
  end
end
