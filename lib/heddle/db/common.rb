# frozen_string_literal: true

# Everything that a connection of any database is made of. A driver loads it when the driver itself is loaded: several
# threads or tasks must not load files in the middle of their work.
require "date"
require_relative "../core/required_gem"
require_relative "../db"
require_relative "../core/dropped_fiber"
require_relative "calendar"

# Before the first connect: a decimal column that came back as another class, or failed, would be noticed much later.
Heddle::RequiredGem.load("bigdecimal", "Heddle::DB", "bigdecimal")

Heddle::DB.const_get(:PARTS).each { |name| Heddle::DB.const_get(name) }
