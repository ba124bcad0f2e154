# frozen_string_literal: true

require_relative "application"

# The application with ActionCable mounted in it, on Puma with plugin :heddle.
class CableApplication < RailsApplication::OnFibers
  FILES = {
    "config/environment.rb" => <<~'RUBY',
      require "logger"
      require "rails"
      require "active_record/railtie"
      require "action_controller/railtie"
      require "action_cable/engine"
      require "heddle/rails"

      class Shop < Rails::Application
        config.root = File.expand_path("..", __dir__)
        config.load_defaults "#{Rails::VERSION::MAJOR}.#{Rails::VERSION::MINOR}"
        config.eager_load = true
        config.secret_key_base = "0" * 64
        config.action_cable.disable_request_forgery_protection = true
      end
      Rails.application.initialize!
    RUBY
    "config/cable.yml" => %(production: {adapter: <%= ENV["CABLE"] %>, url: "<%= ENV["SERVER"] %>"}\n),
    # ActionCable's adapter for PostgreSQL takes the connections of ActiveRecord.
    "config/database.yml" => <<~YAML,
      production:
        url: <%= (ENV["CABLE"] == "postgresql") ? ENV["SERVER"] : "sqlite3:storage/one.sqlite3" %>
    YAML
    "app/models/application_record.rb" => <<~RUBY,
      class ApplicationRecord < ActiveRecord::Base
        primary_abstract_class
      end
    RUBY
    "config/routes.rb" => %(Rails.application.routes.draw { get ":action", controller: "cable" }\n),
    "app/channels/application_cable/connection.rb" => <<~RUBY,
      module ApplicationCable
        class Connection < ActionCable::Connection::Base
          def disconnect = EventsChannel.disconnects << self
        end
      end
    RUBY
    "app/channels/events_channel.rb" => <<~RUBY,
      class EventsChannel < ActionCable::Channel::Base
        @subscribed = Thread::Queue.new
        @disconnects = Thread::Queue.new

        class << self
          attr_reader :subscribed, :disconnects
        end

        def subscribed
          stream_from "events"
          self.class.subscribed << self
        end
      end
    RUBY
    "app/controllers/cable_controller.rb" => <<~RUBY
      class CableController < ActionController::Base
        def publish
          ActionCable.server.broadcast("events", params[:event])
          render json: nil
        end

        def state
          render json: {subscribed: EventsChannel.subscribed.size, disconnects: EventsChannel.disconnects.size,
                        connections: ActionCable.server.connections.size, threads: Thread.list.size,
                        running: Puma.stats_hash.fetch(:running), busy: ApplicationRecord.connection_pool.stat[:busy]}
        end

        alias_method :pool, :state
      end
    RUBY
  }.freeze
  private_constant :FILES

  # @param adapter [String] of ActionCable
  # @param url [String, nil] of the adapter's server
  def initialize(adapter, url)
    @adapter = adapter
    @url_of_server = url
  end

  def publish(event) = get("publish", event: event)

  # @return [Hash] what the channel and Puma know now
  def state = get("state")

  private

  def environment = {**super, "CABLE" => @adapter, "SERVER" => @url_of_server}

  def prepare
    super
    FILES.each do |path, text|
      path = File.join(dir, path)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
    end
  end
end
