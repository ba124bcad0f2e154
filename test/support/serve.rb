# frozen_string_literal: true

# Starts the test servers, runs a command that finds them, and stops them:
#
#   ruby test/support/serve.rb script/with-ruby 3.4 ruby test/support/driver.rb test/unmodified
#
# Prints to standard error which servers are not available; their tests skip. Exits with the command's status. Without
# a command it only fills the servers' cache, so that no test has to wait for that.

require_relative "servers"

Servers::KINDS.each_key do |kind|
  Servers.public_send(kind)
rescue Servers::Unavailable, Servers::StartFailed => e
  warn "serve: no #{kind}: #{e.message.lines.first(20).join}"
end

exit if ARGV.empty?
system(Servers.elsewhere, *ARGV)
exit($?.exitstatus || 1)
