# frozen_string_literal: true

# Loads the compiled part of Heddle.
if (folder = ENV["HEDDLE_NATIVE_DIR"]) && !folder.empty?
  # A build of another kind (with assertions, under a sanitizer, without the probes of the kernel) in a folder of its own.
  require File.expand_path("heddle.so", folder)
else
  begin
    # A checkout, and a gem with compiled code for several Rubies, have a folder a version: code compiled for one minor
    # version of Ruby crashes, or fails to load, in another.
    require "heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}/heddle"
  rescue LoadError => error
    # `gem install` compiles for the one Ruby that it runs on and knows no such folder. A library that is there and does
    # not load has another path in its error: that one has to be seen.
    raise unless error.path == "heddle/#{RUBY_VERSION[/\A\d+\.\d+/]}/heddle"

    begin
      require "heddle/heddle"
    rescue LoadError => missing
      raise unless missing.path == "heddle/heddle"

      raise LoadError, "heddle is not compiled for Ruby #{RUBY_VERSION}: in a checkout run `bundle exec rake compile` with this Ruby, " \
        "else install the gem with it", cause: nil
    end
  end
end
