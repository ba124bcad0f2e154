# frozen_string_literal: true

# Loads the compiled part of Heddle.
if (folder = ENV["HEDDLE_NATIVE_DIR"]) && !folder.empty?
  # Another build (with assertions, under a sanitizer, without probes of the kernel) lies in a folder of its own.
  require File.expand_path("heddle.so", folder)
else
  begin
    # A checkout, and a gem with compiled code for several Rubies, have a folder a version: code compiled for one minor
    # version of Ruby crashes, or fails to load, in another.
    require "heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}/heddle"
  rescue LoadError => error
    # `gem install` compiles for one Ruby, and makes no folder for its version. A compiled library that exists but does
    # not load raises an error with another path, which must not be hidden.
    raise unless error.path == "heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}/heddle"

    begin
      require "heddle/heddle"
    rescue LoadError => missing
      raise unless missing.path == "heddle/heddle"

      raise LoadError, "heddle is not compiled for Ruby #{RUBY_VERSION}: with this Ruby, run " \
        "`bundle exec rake compile` in a checkout, or install the gem", cause: nil
    end
  end
end
