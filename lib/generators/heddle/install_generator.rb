# frozen_string_literal: true

require "rails/generators/base"

module Heddle
  # <tt>bin/rails generate heddle:install</tt>
  class InstallGenerator < ::Rails::Generators::Base
    desc "Writes config/initializers/heddle.rb, with the settings of heddle/rails"

    # @return [void]
    def write_settings
      initializer "heddle.rb", <<~RUBY
        # In the Gemfile: gem "heddle", require: "heddle/rails". Then bin/rails heddle:doctor says what is left to do.
        # In config/puma.rb, for a fiber a request: plugin :heddle, threads 1, 1.
        Rails.application.configure do
          config.heddle.net_http = true # less CPU for every HTTP call
          # config.heddle.keep_alive = {idle: 30} # sessions of Net::HTTP reuse connections of earlier ones
          # config.heddle.timeout = true # Timeout.timeout without a thread
          # config.heddle.deadline = 10 # seconds that a request may take
          # config.heddle.deadline_headers = true # whoever asks may ask for less, and our own requests do
          # config.heddle.fibers = 50 # tasks of a process that use the database at once
        end
      RUBY
    end
  end
end
