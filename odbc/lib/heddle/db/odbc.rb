# frozen_string_literal: true

require "heddle/db/common"
require "heddle/db/mysql/session_zone"
require "heddle/db/postgresql/session_zone"
require "io/wait"

module Heddle
  module DB
    # Databases behind ODBC, by the drivers that unixODBC has. The calls, parameters and rows are in C
    # (odbc/ext/heddle_odbc).
    module ODBC
    end
  end
end

require_relative "odbc/columns"
require_relative "odbc/texts"
require_relative "odbc/parameters"
require_relative "odbc/native"
require_relative "odbc/handle"
require_relative "odbc/calls"
require_relative "odbc/connection_string"
require_relative "odbc/error_classes"
require_relative "odbc/server"
require_relative "odbc/sql"
require_relative "odbc/cursor"
require_relative "odbc/session"
require_relative "odbc/driver"

module Heddle
  module DB
    module ODBC
      private_constant :Client, :Handle, :Columns, :Parameters, :Calls, :ConnectionString, :Server, :SQL, :Cursor,
        :Session
    end
    register "odbc", ODBC::Driver
  end
end
