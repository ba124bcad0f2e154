# frozen_string_literal: true

require "heddle"
require "heddle/db"

%w[queries transactions pools errors results kept_pools virtual_statements named_parameters tables listening]
  .each { |suite| require "shared/db/#{suite}" }

# The behaviour of every database. A test class includes these modules, and says in methods what differs: series,
# sleep_sql, committing, … (test/support/mariadb_dialect.rb has those of MariaDB).
module DatabaseSuite
  # These run over one way to the server: they do not depend on it.
  ONCE = [Pools, Errors, Results, KeptPools, VirtualStatements, NamedParameters, Tables, Listening].freeze
  ALL = [Queries, Transactions, *ONCE].freeze
end
