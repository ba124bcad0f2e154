# frozen_string_literal: true

require_relative "heddle-mysql"

# The same adapter for addresses that begin with mariadb://.
Sequel.synchronize { Sequel::ADAPTER_MAP[:"heddle-mariadb"] = Sequel::HeddleMySQL::Database }
