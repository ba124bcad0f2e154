# frozen_string_literal: true

require "heddle/db/odbc"
