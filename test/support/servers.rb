# frozen_string_literal: true

require_relative "../../lab/lib/heddle/lab/servers"

# Tests use the lab's servers.
Servers = Heddle::Lab::Servers
