# frozen_string_literal: true

desc "Build both gems into pkg/"
task :package do
  mkdir_p "pkg", verbose: false
  sh "gem", "build", "--strict", "--output", "pkg/heddle.gem", "heddle.gemspec"
  sh "gem", "-C", "lab", "build", "--strict", "--output", File.expand_path("pkg/heddle-lab.gem"), "heddle-lab.gemspec"
end
