# frozen_string_literal: true

require "socket" # the loop raises SocketError
require_relative "version"
require_relative "errors"
require_relative "native"
require_relative "loop"
require_relative "compat"
require_relative "connect_filter"
require_relative "deadlines_after_fork"
require_relative "dump"
