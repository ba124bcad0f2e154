# frozen_string_literal: true

require "rails/application"

# A Rails application with gems that applications have beside Puma with plugin :heddle: Devise, rack-attack, Action
# Mailer, Active Storage on S3, Heddle's cache store, Solid Cache, Solid Cable, and Solid Queue by its own plugin.
class GemsApplication < RailsApplication::OnFibers
  USERS = 100
  PASSWORD = "open sesame"
  ALLOWED = 5 # requests that rack-attack lets through

  FILES = {
    "config/puma.rb" => <<~RUBY,
      plugin :heddle
      heddle fibers: #{USERS + 20}
      threads 1, 1
      plugin :solid_queue
      solid_queue_mode ENV.fetch("SOLID_QUEUE_MODE")
    RUBY
    "config/environment.rb" => <<~RUBY,
      require "logger"
      require "rails"
      require "active_record/railtie"
      require "active_job/railtie"
      require "action_controller/railtie"
      require "action_mailer/railtie"
      require "action_cable/engine"
      require "active_storage/engine"
      require "devise"
      require "rack/attack"
      require "solid_cable"
      require "solid_cache"
      require "solid_queue"
      require "heddle/rails"
      require "heddle/sqlite3"
      require_relative "../lib/places"

      Devise.setup do |config|
        require "devise/orm/active_record"
        config.stretches = 1
      end

      class Shop < Rails::Application
        config.root = File.expand_path("..", __dir__)
        config.load_defaults "\#{Rails::VERSION::MAJOR}.\#{Rails::VERSION::MINOR}"
        config.eager_load = true
        config.secret_key_base = "0" * 64
        config.log_tags = [:request_id]
        config.cache_store = :heddle_store, ENV.fetch("MEMCACHED"), {namespace: "shop"}
        config.action_controller.allow_forgery_protection = false
        config.action_cable.disable_request_forgery_protection = true
        config.active_job.queue_adapter = :solid_queue
        config.active_storage.service = :s3
        config.active_storage.analyzers = []
        config.active_storage.variant_processor = :disabled
        config.heddle.net_http = true
        config.heddle.timeout = true
        config.heddle.deadline = 15
        config.heddle.deadline_headers = true
        config.middleware.use Places
      end
      Rails.application.initialize!

      SOLID_CACHE = ActiveSupport::Cache.lookup_store(:solid_cache_store)
      Rack::Attack.throttle("who", limit: #{ALLOWED}, period: 30.days) do |request|
        request.params["who"] if request.path == "/throttled"
      end

      ActiveRecord::Migration.verbose = ActiveRecord::Schema.verbose = false
      %w[solid_cable solid_cache solid_queue].each do |name|
        folder = Gem.loaded_specs.fetch(name).full_gem_path
        load Dir["\#{folder}/lib/generators/\#{name}/install/templates/db/*_schema.rb"].fetch(0)
      end
      load Dir["\#{ActiveStorage::Engine.root}/db/migrate/*_create_active_storage_tables.active_storage.rb",
        "\#{ActiveStorage::Engine.root}/db/migrate/*_create_active_storage_tables.rb"].fetch(0)
      CreateActiveStorageTables.migrate(:up)
      ActiveRecord::Schema.define do
        create_table(:users) { |table| table.string :email, :encrypted_password }
        create_table(:documents) { |table| table.string :name }
        create_table(:notes) { |table| table.string :who }
      end
      User.insert_all(Array.new(#{USERS}) do |i|
        {email: "user\#{i}@example.com", encrypted_password: Devise::Encryptor.digest(User, "#{PASSWORD}")}
      end)
      ActiveRecord::Base.connection_handler.clear_active_connections!
    RUBY
    "config/routes.rb" => <<~RUBY,
      Rails.application.routes.draw do
        devise_for :users
        mount ActionCable.server => "/cable"
        get ":action", controller: "shop"
      end
    RUBY
    "config/database.yml" => <<~YAML,
      production:
        url: <%= ENV.fetch("DATABASE") %>
        max_connections: 40
        timeout: 5000
    YAML
    "config/cable.yml" => "production: {adapter: solid_cable, polling_interval: 0.02.seconds}\n",
    "config/queue.yml" => <<~YAML,
      production:
        dispatchers: [{polling_interval: 0.1}]
        workers: [{queues: "*", threads: 2, polling_interval: 0.05}]
    YAML
    "config/storage.yml" => <<~YAML,
      s3:
        service: S3
        bucket: <%= ENV["S3_BUCKET"] || "none" %>
        endpoint: <%= ENV["S3_ENDPOINT"] || "http://127.0.0.1:1" %>
        region: us-east-1
        force_path_style: true
        retry_limit: 0
        request_checksum_calculation: when_required
        response_checksum_validation: when_required
    YAML
    "lib/places.rb" => <<~RUBY,
      # A middleware that keeps who asks wherever gems keep such things, and leaves it there.
      class Places
        def self.seen
          {fiber_local: Thread.current[:who], fiber_storage: Fiber[:who], current_attributes: Current.who,
           thread_variable: Thread.current.thread_variable_get(:who)}
        end

        def initialize(app) = @app = app

        def call(env)
          env["places"] = self.class.seen
          who = Rack::Request.new(env).params["who"]
          Thread.current[:who] = Fiber[:who] = Current.who = who
          Thread.current.thread_variable_set(:who, who)
          @app.call(env)
        end
      end
    RUBY
    "app/models/gathering.rb" => <<~RUBY,
      # Lets nobody go on before all are here.
      class Gathering
        LOCK = Mutex.new
        CHANGE = ConditionVariable.new
        PRESENT = Hash.new(0)

        def self.wait(name, count)
          LOCK.synchronize do
            PRESENT[name] += 1
            CHANGE.broadcast
            CHANGE.wait(LOCK) until PRESENT[name] >= count
          end
        end
      end
    RUBY
    "app/models/current.rb" => "class Current < ActiveSupport::CurrentAttributes\n  attribute :who\nend\n",
    "app/models/document.rb" => "class Document < ActiveRecord::Base\n  has_one_attached :file\nend\n",
    "app/models/note.rb" => "class Note < ActiveRecord::Base\nend\n",
    "app/models/user.rb" => "class User < ActiveRecord::Base\n  devise :database_authenticatable\nend\n",
    "app/channels/notes_channel.rb" => <<~RUBY,
      class NotesChannel < ActionCable::Channel::Base
        def subscribed = stream_from("notes")
      end
    RUBY
    "app/jobs/note_job.rb" => <<~RUBY,
      class NoteJob < ActiveJob::Base
        def perform(who)
          SOLID_CACHE.write("note of \#{who}", who)
          Note.create!(who: who)
          ActionCable.server.broadcast("notes", {who: who})
        end
      end
    RUBY
    "app/mailers/letters.rb" => <<~RUBY,
      class Letters < ActionMailer::Base
        def letter(who, number, port)
          mail(from: "shop@example.com", to: "\#{who}@example.com", subject: "letter \#{number}",
            body: "letter \#{number} to \#{who}", content_type: "text/plain",
            delivery_method_options: {address: "127.0.0.1", port: port, openssl_verify_mode: "none"})
        end
      end
    RUBY
    "app/controllers/application_controller.rb" => "class ApplicationController < ActionController::Base\nend\n",
    "app/controllers/shop_controller.rb" => <<~'RUBY'
      class ShopController < ApplicationController
        def pool = render(json: ActiveRecord::Base.connection_pool.stat)

        def throttled = render(json: "let through".to_json)

        def user
          authenticate_user!
          before = current_user.email
          gather
          render json: [before, current_user.email, User.find(warden.user(:user).id).email, Current.who]
        end

        def places
          gather
          render json: {before: request.env["places"], request: Places.seen, task: Heddle.spawn { Places.seen }.value}
        end

        def cached = render(json: value_of(Rails.cache))

        def solidly_cached = render(json: value_of(SOLID_CACHE))

        def letters
          Heddle.map(1..params[:letters].to_i) do |number|
            Letters.letter(params[:who], number, params[:port].to_i).deliver_now
          end
          render json: params[:letters]
        end

        def upload
          text = "what #{params[:who]} has written\n" * 1000
          document = Document.create!(name: params[:who],
            file: {io: StringIO.new(text), filename: "#{params[:who]}.txt", content_type: "text/plain"})
          render json: {path: rails_storage_proxy_path(document.file)}
        end

        def download
          file = Document.find_by!(name: params[:who]).file
          parts = []
          file.download { |part| parts << part }
          render json: [file.download, parts.join]
        end

        def announce
          ActionCable.server.broadcast("notes", {who: params[:who]})
          render json: {}
        end

        def enqueue
          gather
          NoteJob.perform_later(params[:who])
          render json: {}
        end

        def notes
          names = Note.order(:id).pluck(:who)
          render json: [names, SOLID_CACHE.read_multi(*names.map { |who| "note of #{who}" }).values]
        end

        private

        # Waits for all requests of the group.
        def gather = Gathering.wait(params[:group], params[:count].to_i)

        # Each request computes a value of its own, and reads it.
        def value_of(cache)
          key = "#{params[:group]} #{params[:who]}"
          computed = cache.fetch(key) do
            gather
            params[:who]
          end
          [computed, cache.fetch(key) { "not there" }]
        end
      end
    RUBY
  }.freeze
  private_constant :FILES

  # @param database [String] its URL
  # @param jobs [:async, :fork] Solid Queue in threads of Puma's process, or in a child of it
  # @param s3 [Hash{String => String}] the environment for S3
  def initialize(database:, jobs:, s3: {})
    super()
    @settings = {"DATABASE" => database, "SOLID_QUEUE_MODE" => jobs.to_s, **s3}
  end

  # @param request [Net::HTTPRequest]
  # @return [Net::HTTPResponse]
  def ask(request)
    limits = {read_timeout: Slowness.stretch(PATIENCE), max_retries: 0}
    Net::HTTP.start(host, port, limits) { |http| http.request(request) }
  end

  private

  def files = {**super.slice("config.ru"), **FILES}

  def environment
    memcached = Servers.memcached
    {**super, **@settings, "MEMCACHED" => "#{memcached.host}:#{memcached.port}"}
  end
end
