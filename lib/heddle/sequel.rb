# frozen_string_literal: true

require "heddle" unless defined?(Heddle::FiberPool)
require "sequel"

# Loads the extension +heddle+ (lib/sequel/extensions/heddle.rb) into each Sequel::Database that is made from now on:
#
#   require "heddle/sequel"
#   DB = Sequel.connect("postgres://…")
#
# For a single one, <tt>DB.extension(:heddle)</tt>.
Sequel::Database.extension(:heddle)
