# frozen_string_literal: true

require_relative "../../lab/lib/heddle/lab/servers"

# The tests' servers are those of the lab.
Servers = Heddle::Lab::Servers
