# frozen_string_literal: true

desc "Write the API pages and the guides to doc/api; fails at a warning, and for a public method without a page"
task :doc do
  require_relative "documentation"
  documentation = Documentation.new
  documentation.build
  gaps = documentation.gaps
  raise "without a comment that YARD sees:\n  #{gaps.join("\n  ")}" if gaps.any?
end
