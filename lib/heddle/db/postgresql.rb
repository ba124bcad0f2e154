# frozen_string_literal: true

require "ipaddr"
require_relative "common"
require_relative "postgresql/error_classes"
require_relative "postgresql/bounds"
require_relative "postgresql/columns"
require_relative "postgresql/conninfo"
require_relative "postgresql/copy_options"
require_relative "postgresql/geometry"
require_relative "postgresql/interval"
require_relative "postgresql/notice"
require_relative "postgresql/notification"
require_relative "postgresql/option_checks"
require_relative "postgresql/scram"
require_relative "postgresql/session_zone"
require_relative "postgresql/settings"
require_relative "postgresql/login"
require_relative "postgresql/connecting"
require_relative "postgresql/cancel"
require_relative "postgresql/parameters"
require_relative "postgresql/prepared"
require_relative "postgresql/types"
require_relative "postgresql/values"
require_relative "postgresql/driver"

module Heddle
  module DB
    # PostgreSQL. Messages, parameters and rows are in C (ext/heddle/wire/wire_postgresql*.c, ext/heddle/postgresql).
    module PostgreSQL
      # @api private A connection's messages. Its methods are in C.
      class Link; end

      # The rows of a COPY FROM STDIN: what +copy_in+ gives its block.
      class CopyIn; end

      Link.know_classes
      private_constant :Link, :CopyOut
    end

    register "postgresql", PostgreSQL::Driver
    register "postgres", PostgreSQL::Driver
  end
end
