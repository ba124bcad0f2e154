# frozen_string_literal: true

require_relative "../lib/heddle/version"

Gem::Specification.new do |spec|
  spec.name = "heddle-odbc"
  spec.version = Heddle::VERSION
  spec.authors = ["The Heddle authors"]
  spec.summary = "ODBC for Heddle::DB: databases behind unixODBC, without stopping other tasks"
  spec.description = <<~TEXT
    Heddle::DB.connect("odbc:DSN=…"): each connection calls its ODBC driver on a native thread of its own. Tasks wait in
    the scheduler, and a deadline or cancel ends a query. Needs unixODBC.
  TEXT
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1.2"

  spec.files = Dir.chdir(__dir__) do
    Dir["lib/**/*.rb", "ext/**/*.{c,h,rb}", "sig/**/*.rbs", "LICENSE", "README.md"].sort
  end
  spec.extensions = ["ext/heddle_odbc/extconf.rb"]
  spec.require_paths = ["lib"]
  spec.homepage = "https://heddle.example"
  spec.metadata = {
    "source_code_uri" => "https://heddle.example/source",
    "changelog_uri" => "https://heddle.example/source/blob/main/CHANGELOG.md",
    "documentation_uri" => "https://heddle.example/api",
    "bug_tracker_uri" => "https://heddle.example/source/issues",
    "rubygems_mfa_required" => "true"
  }

  spec.add_dependency "heddle", "= #{Heddle::VERSION}"
end
