# frozen_string_literal: true

desc "Build the gems into pkg/; a warning is an error"
task package: :context do
  mkdir_p "pkg", verbose: false
  sh "gem", "build", "--strict", "--output", "pkg/heddle.gem", "heddle.gemspec"
  {"lab" => "heddle-lab", "odbc" => "heddle-odbc"}.each do |folder, name|
    output = File.expand_path("pkg/#{name}.gem")
    chdir(folder, verbose: false) { sh "gem", "build", "--strict", "--output", output, "#{name}.gemspec" }
  end
end

namespace :release do
  desc "Check that this tree may be released; CONTRIBUTING.md lists the steps that this task cannot check"
  task check: %i[style rbs doc package] do
    require_relative "release_check"
    problems = ReleaseCheck.new(Rake.original_dir).problems
    raise "not ready:\n  #{problems.join("\n  ")}" if problems.any?
  end
end
