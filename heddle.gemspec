# frozen_string_literal: true

require_relative "lib/heddle/version"

Gem::Specification.new do |spec|
  spec.name = "heddle"
  spec.version = Heddle::VERSION
  spec.authors = ["The Heddle authors"]
  spec.summary = "Ruby networking that does not block, stall or burn CPU"
  spec.description = <<~TEXT
    A Fiber::Scheduler in C, a pool of fibers and native deadlines: thousands of unmodified Net::HTTP requests, database
    queries or any other waits at once in one process, without a change to the libraries that make them.
  TEXT
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1.2"

  spec.homepage = "https://heddle.example"
  spec.metadata = {
    "source_code_uri" => "https://heddle.example/source",
    "changelog_uri" => "https://heddle.example/source/blob/main/CHANGELOG.md",
    "documentation_uri" => "https://heddle.example/api",
    "bug_tracker_uri" => "https://heddle.example/source/issues",
    "rubygems_mfa_required" => "true"
  }

  spec.files = Dir.chdir(__dir__) do
    Dir["lib/**/*.{rb,lua,rake}", "ext/**/*.{c,h,rb}", "ext/**/depend", "exe/*", "sig/**/*.{rbs,yaml}", "guides/*.md",
      "context/*", "llms.txt", "doc/{limits,ruby,compatibility}.md", "doc/adr/*.md", "LICENSE", "README.md",
      "CHANGELOG.md", "SECURITY.md", ".yardopts"].sort
  end
  spec.bindir = "exe"
  spec.executables = ["heddle"]
  spec.extensions = ["ext/heddle/extconf.rb"]
  spec.require_paths = ["lib"]
end
