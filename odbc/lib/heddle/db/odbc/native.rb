# frozen_string_literal: true

# Loads the compiled part. A checkout has a folder for each minor version of Ruby, and one for each other build.
if (folder = ENV["HEDDLE_NATIVE_DIR"]) && !folder.empty?
  require File.expand_path("odbc/heddle_odbc.so", folder)
else
  begin
    require "heddle/db/odbc/#{RUBY_VERSION[/\A\d+\.\d+/]}/heddle_odbc"
  rescue LoadError => error
    raise unless error.path == "heddle/db/odbc/#{RUBY_VERSION[/\A\d+\.\d+/]}/heddle_odbc"

    begin
      require "heddle/db/odbc/heddle_odbc"
    rescue LoadError => missing
      raise unless missing.path == "heddle/db/odbc/heddle_odbc"

      raise LoadError, "heddle-odbc is not compiled for Ruby #{RUBY_VERSION}: install unixODBC's headers " \
        "(unixodbc-dev), then run `bundle exec rake compile` in a checkout, or install the gem", cause: nil
    end
  end
end
