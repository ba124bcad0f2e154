# frozen_string_literal: true

require_relative "architecture"

desc "Check that no room of the C code includes a room above it, and draw the rooms"
task :architecture do
  architecture = Architecture.new(Architecture::GROUND)
  puts architecture.picture
  violations = architecture.violations
  raise "rooms:\n  #{violations.join("\n  ")}" if violations.any?
end
