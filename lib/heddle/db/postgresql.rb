# frozen_string_literal: true

require "ipaddr"
require_relative "common"
require_relative "postgresql/error_classes"
require_relative "postgresql/pg_range"
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
require_relative "postgresql/calls"
require_relative "postgresql/cancel"
require_relative "postgresql/parameters"
require_relative "postgresql/prepared"
require_relative "postgresql/simple_results"
require_relative "postgresql/types"
require_relative "postgresql/binary_form"
require_relative "postgresql/values"
require_relative "postgresql/driver"

module Heddle
  module DB
    # PostgreSQL. Messages, parameters and rows are in C (ext/heddle/wire/postgresql, ext/heddle/db/postgresql).
    #
    # Addresses: <tt>postgresql://user:password@host:port/base</tt>, or libpq's "host=… dbname=…". Without one, the
    # environment (PGHOST and the others), a service file and a password file are read, as libpq does. The port is 5432.
    # Options besides those of {DB.connect} have the names and meanings of libpq's:
    #
    # - which server: several hosts and ports with commas between them, +hostaddr+, +target_session_attrs+,
    #   +load_balance_hosts+
    # - TLS: +sslmode+, +sslnegotiation+, +sslrootcert+, +sslcert+, +sslkey+, +sslpassword+, +channel_binding+
    # - the log-in: +passfile+, +require_auth+
    # - the session: +application_name+, +fallback_application_name+, +search_path+, +options+, and +parameters+, a Hash
    #   of any other run-time parameters
    module PostgreSQL
      # A connection's messages. Its methods are in C.
      #
      # @api private
      class Protocol; end

      # The rows of a COPY FROM STDIN: what +copy_in+ gives its block.
      class CopyIn; end

      Protocol.load_classes
      private_constant :Protocol, :CopyOut
    end

    register "postgresql", PostgreSQL::Driver
    register "postgres", PostgreSQL::Driver
  end
end
