# frozen_string_literal: true

desc "Adopt the versions of gems of this checkout's bundles for the tests, on each Ruby that has one"
task :versions do
  require_relative "../test/support/versions"
  Dir["tmp/{newest,bundle}/*/Gemfile.lock"].group_by { |lock| lock.split("/")[-2] }.each do |ruby, locks|
    GemVersions.write(ruby, GemVersions.locked(locks.min_by { |lock| lock.start_with?("tmp/newest") ? 0 : 1 }))
  end
end
