# frozen_string_literal: true

desc "Check the style of the Ruby files"
task :style do
  sh "standardrb", "--format", "quiet"
end

desc "Check the signatures in sig/"
task :rbs do
  sh "rbs", "-r", "timeout", "-r", "bigdecimal", "-r", "date", "-r", "socket", "-I", "sig", "validate"
end

desc "Lay out the C files as .clang-format has it"
task :format do
  sh "clang-format", "-i", *FileList["{ext,lab/ext}/**/*.{c,h}"]
end
