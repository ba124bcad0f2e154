# frozen_string_literal: true

# The kit behind doc/compatibility.md. A library has a file in libraries/, which says how to ask it for an answer;
# examination.rb asks all libraries the same questions; survey.rb does so for all of them, each in a process of its own;
# page.rb writes the page from the results.

tree = File.expand_path("../..", __dir__)
$LOAD_PATH.unshift("#{tree}/lib", "#{tree}/lab/lib", "#{tree}/test")
$LOAD_PATH.uniq!

require "support/locale"
require "heddle/core/clock"
require_relative "library"
