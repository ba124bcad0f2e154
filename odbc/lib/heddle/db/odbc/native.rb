# frozen_string_literal: true

require "heddle/core/native"

Heddle::Native.load("heddle-odbc", "heddle/db/odbc/heddle_odbc", other: "odbc/heddle_odbc.so",
  sources: File.expand_path("../../../../ext/heddle_odbc/extconf.rb", __dir__),
  needs: "install unixODBC's headers (unixodbc-dev)", library: "unixODBC (Debian, Ubuntu: libodbc2)")
