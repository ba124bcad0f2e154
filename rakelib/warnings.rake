# frozen_string_literal: true

require_relative "build_definitions"
require_relative "odbc_headers"

# Compiles our C files by the other of gcc and clang, with warnings as errors, as `rake compile` does by Ruby's own
# compiler. The options for Ruby and the kernel come from the Makefile that extconf.rb wrote, so that the same code is
# checked.
namespace :warnings do
  compilers = %w[gcc clang].select do |name|
    !RbConfig::CONFIG["CC"].include?(name) &&
      ENV["PATH"].split(":").any? { |folder| File.executable?(File.join(folder, name)) }
  end
  headers = FileList["{,odbc/}ext/**/*.h"]
  ruby_headers = RbConfig::CONFIG.values_at("rubyhdrdir", "rubyarchhdrdir").flat_map { |folder| ["-isystem", folder] }

  compilers.each do |compiler|
    objects = FileList["ext/heddle/**/*.c", *("odbc/ext/**/*.c" if OdbcHeaders.here?)].map do |source|
      object = source.pathmap("tmp/warnings/#{RUBY_VERSION}/#{compiler}/%X.o")
      file object => [source, *headers] do
        mkdir_p File.dirname(object), verbose: false
        sh compiler, "-std=gnu11", "-O1", "-fPIC", "-MD", "-Wall", "-Wextra", "-Wshadow", "-Werror",
          *BuildDefinitions.of_this_ruby, *ruby_headers,
          "-Iext/heddle", "-c", source, "-o", object, verbose: false
      end
      object
    end
    task compiler => objects
  end

  task all: [:compile, *compilers] do
    warn "warnings: only by Ruby's own compiler, for the other of gcc and clang is not here" if compilers.empty?
  end
end

desc "Compile with gcc and clang, each warning being an error"
task warnings: "warnings:all"
