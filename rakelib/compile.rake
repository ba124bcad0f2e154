# frozen_string_literal: true

require "etc"
require "pathname"
require_relative "odbc_headers"

ENV["MAKEFLAGS"] ||= "-j#{Etc.nprocessors}"
ENV["HEDDLE_WERROR"] = "1"

Rake::ExtensionTask.new("heddle", Gem::Specification.load("heddle.gemspec")) do |ext|
  # One checkout serves several Rubies, so each minor version has a folder, which lib/heddle/core/native.rb finds.
  ext.lib_dir = "lib/heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}"
  ext.source_pattern = "**/*.{c,h}"
end

# heddle-odbc has its own gem, for it alone needs unixODBC's headers.
if OdbcHeaders.here?
  Rake::ExtensionTask.new("heddle_odbc") do |ext|
    ext.ext_dir = "odbc/ext/heddle_odbc"
    ext.lib_dir = "odbc/lib/heddle/db/odbc/#{RUBY_VERSION[/\A\d+\.\d+/]}"
    ext.source_pattern = "*.{c,h}"
  end
else
  task(:compile) { warn "compile: not heddle-odbc, for unixODBC's headers (unixodbc-dev) are missing here" }
end

namespace :compile do
  # Other builds of the same code, each in a folder of its own for HEDDLE_NATIVE_DIR.
  {
    debug: ["with assertions", {"HEDDLE_DEBUG" => "1"}],
    portable: ["without any probe of the kernel", {"HEDDLE_PORTABLE" => "1"}],
    sanitized: ["with AddressSanitizer and UndefinedBehaviorSanitizer",
      {"HEDDLE_DEBUG" => "1", "HEDDLE_SANITIZE" => "address,undefined"}],
    threads: ["with ThreadSanitizer", {"HEDDLE_SANITIZE" => "thread"}],
    coverage: ["to count the lines that run", {"HEDDLE_COVERAGE" => "1"}]
  }.each do |build, (what, environment)|
    extensions = {"tmp/native/#{build}/#{RUBY_VERSION}" => "ext/heddle/extconf.rb"}
    if OdbcHeaders.here?
      extensions["tmp/native/#{build}/#{RUBY_VERSION}/odbc"] = "odbc/ext/heddle_odbc/extconf.rb"
    end
    extensions.each do |folder, extconf|
      file "#{folder}/Makefile" => extconf do
        mkdir_p folder, verbose: false
        # The sources get the path that begins here, which is the same in every checkout: ccache compares it.
        path = Pathname(extconf).relative_path_from(Pathname(folder)).to_s
        chdir(folder, verbose: false) { sh(environment, RbConfig.ruby, path, verbose: false) }
      end
    end

    desc "Compile #{what}, into #{extensions.keys.first}"
    task build => extensions.keys.map { |folder| "#{folder}/Makefile" } do
      extensions.each_key { |folder| sh "make", "--silent", "-C", folder, verbose: false }
    end
  end

  desc "Compile the load server"
  task :server do
    sh "make", "--silent", "-C", "lab/ext/server"
  end
end

# extconf.rb lists the sources when it runs: after a file was added or removed, it must run again.
sources = "tmp/sources"
names = FileList["ext/heddle/**/*.c", "odbc/ext/**/*.c"].sort.join("\n")
unless File.exist?(sources) && File.read(sources) == names
  mkdir_p File.dirname(sources), verbose: false
  File.write(sources, names)
end
Rake::Task.tasks.select { |task| File.basename(task.name) == "Makefile" }.each { |task| task.enhance([sources]) }
