# frozen_string_literal: true

require_relative "heddle-postgresql"

# The same adapter for addresses that begin with postgres://, as many DATABASE_URLs do.
Sequel.synchronize { Sequel::ADAPTER_MAP[:"heddle-postgres"] = Sequel::HeddlePostgreSQL::Database }
