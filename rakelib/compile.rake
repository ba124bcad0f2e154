# frozen_string_literal: true

require "rake/extensiontask"

Rake::ExtensionTask.new("heddle", Gem::Specification.load("heddle.gemspec")) do |ext|
  # One checkout serves several Rubies, so each minor version has a folder; lib/heddle/native.rb knows them.
  ext.lib_dir = "lib/heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}"
  ext.source_pattern = "**/*.{c,h}"
end

namespace :compile do
  desc "Compile the load server"
  task :server do
    sh "make", "--silent", "-C", "lab/ext/server"
  end
end
