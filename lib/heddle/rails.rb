# frozen_string_literal: true

require_relative "../heddle"
require_relative "core/required_gem"
Heddle::RequiredGem.load("rails", "heddle/rails", "railties, 7.1 or later")
require_relative "rails/checks"
require_relative "rails/railtie"

module Heddle
  # What a Rails application has of Heddle: settings in +config.heddle+, checks at its boot,
  # <tt>bin/rails heddle:doctor</tt>, and, where requests are tasks, the actions of ActionController::Live as tasks.
  #
  #   gem "heddle", require: "heddle/rails" # Gemfile
  #
  # See {Rails::Railtie} for the settings.
  module Rails
  end
end
