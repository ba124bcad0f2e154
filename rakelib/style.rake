# frozen_string_literal: true

require_relative "columns"

desc "Check the style of the Ruby files, and the width of all lines"
task :style do
  sh "standardrb", "--format", "quiet"
  complaints = Columns.complaints
  abort complaints.join("\n") unless complaints.empty?
end

desc "Check the signatures in sig/ and odbc/sig/"
task :rbs do
  sh "rbs", "-r", "timeout", "-r", "bigdecimal", "-r", "date", "-r", "socket", "-I", "sig", "-I", "odbc/sig", "validate"
end

desc "Lay out the C files as .clang-format has it"
task :format do
  sh "clang-format", "-i", *FileList["{ext,lab/ext,odbc/ext}/**/*.{c,h}"]
end
