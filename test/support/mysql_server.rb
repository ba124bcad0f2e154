# frozen_string_literal: true

require "support/servers"

# For tests that need MySQL itself.
module MySQLHelpers
  # @return [Servers::MySQL] this process's server; skips the test with the reason where none can be started
  def mysql
    Servers.mysql
  rescue Servers::Unavailable => error
    skip error.message
  end
end
