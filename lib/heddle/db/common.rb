# frozen_string_literal: true

# Everything that a connection of any database is made of. A driver loads it when the driver itself is loaded: several
# threads or tasks must not load files in the middle of their work.
require "bigdecimal"
require "date"
require_relative "../db"
require_relative "../core/dropped_fiber"
require_relative "calendar"

Heddle::DB.const_get(:PARTS).each { |name| Heddle::DB.const_get(name) }
