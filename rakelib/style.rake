# frozen_string_literal: true

require_relative "columns"
require_relative "styled_files"

desc "Check the style of the Ruby files, and the width of all lines"
task :style do
  files = IO.popen(%w[standardrb --list-target-files]) { |list| list.readlines(chomp: true) }
  abort "standardrb does not list its files" unless $?.success? && files.any?
  StyledFiles.of_this_user.check(files) { |unknown| sh "standardrb", "--format", "quiet", *unknown, verbose: false }
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
