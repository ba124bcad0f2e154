# frozen_string_literal: true

require_relative "../lib/heddle/version"

Gem::Specification.new do |spec|
  spec.name = "heddle-lab"
  spec.version = Heddle::VERSION
  spec.authors = ["The Heddle authors"]
  spec.summary = "Measures Ruby's network clients side by side, on your own machine"
  spec.description = <<~TEXT
    More of the `heddle` command: a load server in C, and benches that run Heddle and its peers in interleaved rounds,
    each in a fresh process, with the noise floor printed beside the figures. For Linux.
  TEXT
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1.2"

  spec.files = Dir.chdir(__dir__) do
    Dir["lib/**/*.{rb,go,py,js,css,html}", "ext/**/*.{c,h,rb}", "ext/**/Makefile", "LICENSE", "README.md"].sort
  end
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
