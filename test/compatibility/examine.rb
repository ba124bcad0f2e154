# frozen_string_literal: true

# test/compatibility/examine.rb LIBRARY: asks one library all questions, in this process, and prints what it finds, a
# line of JSON each.

require_relative "kit"

findings = $stdout.dup
$stdout.reopen($stderr) # libraries print, too
findings.sync = true
library = Compatibility.libraries.fetch(ARGV.fetch(0))
Compatibility::Examination.new(library) { |key, value| findings.puts(JSON.generate(key => value)) }.run
exit! # whatever threads the library has
