# frozen_string_literal: true

# The time of all files in a gem: the commit's, so that each machine makes the same bytes.
task :source_date do
  date = IO.popen(%w[git log -1 --format=%ct], chdir: Rake.original_dir, err: File::NULL, &:read).chomp
  ENV["SOURCE_DATE_EPOCH"] ||= date unless date.empty?
end

desc "Build the gems into pkg/; a warning is an error"
task package: %i[context source_date] do
  mkdir_p "pkg", verbose: false
  sh "gem", "build", "--strict", "--output", "pkg/heddle.gem", "heddle.gemspec"
  {"lab" => "heddle-lab", "odbc" => "heddle-odbc"}.each do |folder, name|
    output = File.expand_path("pkg/#{name}.gem")
    chdir(folder, verbose: false) { sh "gem", "build", "--strict", "--output", output, "#{name}.gemspec" }
  end
end
