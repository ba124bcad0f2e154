# frozen_string_literal: true

require_relative "../heddle"
require_relative "core/required_gem"
Heddle::RequiredGem.load("sqlite3", "heddle/sqlite3", "sqlite3, 1.7 or later")
require_relative "db/sqlite"
require_relative "integrations/database_gems"
require_relative "sqlite3/turns"
require_relative "sqlite3/support"

module Heddle
  # Makes the statements of SQLite3::Database let other tasks run, also those of ActiveRecord and Sequel over the gem.
  #
  #   require "heddle/sqlite3"
  #
  # In a task, a statement that runs for more than a millisecond gives the other tasks their turn, again and again. A
  # deadline or a cancel ends it: the caller gets that error, and SQLite has rolled back what an interrupted statement
  # had written, with its transaction. The wait for another connection's lock (+busy_timeout+) is a wait like any other,
  # too. Elsewhere, in plain threads and under other schedulers, the gem works as it does without Heddle.
  #
  # While a statement lets others run, SQLite forbids its connection to everybody else: whoever uses the connection then
  # waits until the statement has ended. Give each task a connection of its own.
  #
  # Covers connections that are opened after this file was loaded; not those that share a cache (<tt>cache=shared</tt>),
  # nor those whose name is in UTF-16.
  module SQLite3
    Support.check
    Support.install
  end
end
