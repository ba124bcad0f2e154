# frozen_string_literal: true

# All of sqlite3_busy_test.rb again, with heddle/sqlite3 below ActiveRecord's and Sequel's own support.
require "test_helper"
require "heddle/sqlite3"
require "unmodified/sqlite3_busy_test"
