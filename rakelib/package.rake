# frozen_string_literal: true

desc "Build both gems into pkg/"
task :package do
  mkdir_p "pkg", verbose: false
  sh "gem", "build", "--output", "pkg/heddle.gem", "heddle.gemspec"
  output = File.expand_path("pkg/heddle-lab.gem")
  chdir("lab", verbose: false) { sh "gem", "build", "--output", output, "heddle-lab.gemspec" }
end
