# frozen_string_literal: true

require_relative "examples"

desc "Type-check the code of README.md, the guides and examples/ by steep, which is not in the Gemfile"
task :examples do
  folder = "tmp/examples"
  Examples.new(folder).write
  output = Bundler.with_unbundled_env { IO.popen(%w[steep check --jobs=1], chdir: folder, err: %i[child out], &:read) }
  raise "steep did not check: #{output}" unless output.match?(/No type error detected|Detected \d+ problem/)

  complaints = Examples.complaints(output)
  abort complaints.join("\n") unless complaints.empty?
rescue Errno::ENOENT
  abort "steep is not installed: gem install steep"
end
