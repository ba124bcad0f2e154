# frozen_string_literal: true

require_relative "mysql"

module Heddle
  module DB
    register "mariadb", MySQL::Driver
  end
end
