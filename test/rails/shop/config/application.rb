# frozen_string_literal: true

require "logger"
require "rails"
require "active_record/railtie"
require "action_controller/railtie"
require "net/http"
# As Bundler.require does, for a Gemfile with these lines:
#
#   gem "heddle", require: "heddle/rails"
#   gem "sqlite3", require: "heddle/sqlite3"
require "heddle/rails"
require "heddle/sqlite3"

class Shop < Rails::Application
  config.load_defaults "#{Rails::VERSION::MAJOR}.#{Rails::VERSION::MINOR}"
  config.eager_load = true
  config.secret_key_base = "0" * 64
  config.paths["log"] = "production.log"
  config.log_tags = [:request_id]
  config.heddle.net_http = true
  config.heddle.keep_alive = {idle: 30}
  config.heddle.deadline = 60
end
