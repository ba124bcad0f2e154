# frozen_string_literal: true

require "bigdecimal"
require "date"
require_relative "../db"
require_relative "mysql/columns"
require_relative "mysql/driver"
require_relative "mysql/login"
require_relative "mysql/killer"

module Heddle
  module DB
    # MySQL and MariaDB. Packets, parameters and rows are in C (ext/heddle/wire/mysql.c, ext/heddle/mysql).
    module MySQL
      Link.know_classes
      private_constant :Link, :Login, :Killer
    end

    register "mysql", MySQL::Driver
  end
end
