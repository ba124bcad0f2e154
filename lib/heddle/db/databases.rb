# frozen_string_literal: true

module Heddle
  module DB
    # The databases that Heddle knows: the one place in the common part that names them. A new driver adds its scheme
    # and its type here, and has a file lib/heddle/db/SCHEME.rb, which registers it ({DB.register}).
    #
    # @api private
    module Databases
      # The schemes of their addresses.
      SCHEMES = %w[mysql mariadb postgresql postgres sqlite sqlite3 odbc].freeze

      # Schemes whose driver is in a gem of its own, with what that gem needs besides.
      GEMS = {"odbc" => ["heddle-odbc", "unixODBC with its headers (Debian, Ubuntu: unixodbc-dev)"]}.freeze

      # Addresses without a scheme: "host=… dbname=…" is the other form that libpq takes.
      FORMS = {/\A\s*[A-Za-z_][A-Za-z0-9_]*\s*=/ => "postgresql"}.freeze

      # What {Connection#database_type} returns, each with the type whose SQL it takes where a {VirtualStatement} has
      # none for itself.
      TYPES = {mysql: nil, mariadb: :mysql, postgresql: nil, sqlite: nil, odbc: nil}.freeze

      # An address, for messages; and one of each kind.
      EXAMPLE = "mysql://user:password@host/base"
      EXAMPLES = "#{EXAMPLE}, postgresql://user:password@host/base, sqlite:relative/path or odbc:DSN=name"
    end
    private_constant :Databases
  end
end
