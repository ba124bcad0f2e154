# frozen_string_literal: true

require_relative "../heddle"
require_relative "core/required_gem"
Heddle::RequiredGem.load("sequel", "heddle/sequel", "sequel")

# Loads the extension +heddle+ (lib/sequel/extensions/heddle.rb) into each later Sequel::Database:
#
#   require "heddle/sequel"
#   DB = Sequel.connect("postgres://…")
#
# To load it into one database only, call <tt>DB.extension(:heddle)</tt>.
Sequel::Database.extension(:heddle)
