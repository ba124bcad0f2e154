# frozen_string_literal: true

require_relative "architecture"

desc "Check that no layer of the C code includes a layer above it, and draw the layers"
task :architecture do
  architecture = Architecture.new(Architecture::GROUND)
  puts architecture.picture
  violations = architecture.violations
  raise "layers:\n  #{violations.join("\n  ")}" if violations.any?
end
