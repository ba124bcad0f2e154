# frozen_string_literal: true

desc "Adopt the versions of gems of this checkout's bundles for the tests, on each Ruby that has one"
task :versions do
  require_relative "../test/support/versions"
  {"" => "", "-compatibility" => "compatibility-"}.each do |bundle, set|
    Dir["tmp/{newest,bundle}#{bundle}/*/Gemfile.lock"].group_by { |lock| lock.split("/")[-2] }.each do |ruby, locks|
      lock = locks.min_by { |path| path.start_with?("tmp/newest") ? 0 : 1 }
      GemVersions.write("#{set}#{ruby}", GemVersions.locked(lock))
    end
  end
end
