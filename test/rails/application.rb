# frozen_string_literal: true

require "json"
require "net/http"
require "support/loop_helpers"
require "support/servers"

# A small Rails application on Puma, as a user's: two shards in SQLite, of which a middleware of Rails' takes one for
# each request, and Heddle with the one setting that the guide asks for. Each start writes it into a folder.
class RailsApplication < Servers::Server
  ROOT = File.expand_path("../..", __dir__)
  THREADS = 4
  PATIENCE = 20 # seconds that an answer may take
  private_constant :ROOT, :PATIENCE

  FILES = {
    "config.ru" => <<~RUBY,
      require_relative "config/environment"
      run Rails.application
    RUBY
    "config/environment.rb" => <<~RUBY,
      require "logger"
      require "rails"
      require "active_record/railtie"
      require "action_controller/railtie"
      require "heddle" # as Bundler.require does, for a Gemfile with gem "heddle"

      class Shop < Rails::Application
        config.root = File.expand_path("..", __dir__)
        config.load_defaults "\#{Rails::VERSION::MAJOR}.\#{Rails::VERSION::MINOR}"
        config.eager_load = true
        config.secret_key_base = "0" * 64
        config.log_tags = [:request_id]
        config.active_support.isolation_level = :fiber
        config.active_record.shard_selector = {lock: true}
        config.active_record.shard_resolver = ->(request) { request.params.fetch("shard", "one") }
      end
      Rails.application.initialize!
      %i[one two].each do |shard|
        ApplicationRecord.connected_to(shard: shard, role: :writing) do
          ApplicationRecord.connection_pool.with_connection { |it| it.create_table(:items) { |t| t.string :name } }
          Item.create!(name: shard)
        end
      end

      # Keeps the last event by fiber.
      module LastEvent
        def self.emit(event) = Thread.current[:last_event] = event.slice(:payload, :tags, :context)
      end
      Rails.event.subscribe(LastEvent) if Rails.respond_to?(:event) # since 8.1
    RUBY
    "config/routes.rb" => %(Rails.application.routes.draw { get ":action", controller: "items" }\n),
    "config/database.yml" => <<~YAML,
      production:
      <% %w[one two].product([false, true]).each do |shard, replica| %>
        <%= shard %><%= "_replica" if replica %>:
          adapter: sqlite3
          database: storage/<%= shard %>.sqlite3
          replica: <%= replica %>
          <%= ActiveRecord.version >= Gem::Version.new("8.1") ? "max_connections" : "pool" %>: 20
          timeout: 1000
      <% end %>
    YAML
    "app/models/application_record.rb" => <<~RUBY,
      class ApplicationRecord < ActiveRecord::Base
        primary_abstract_class
        connects_to shards: {one: {writing: :one, reading: :one_replica}, two: {writing: :two, reading: :two_replica}}
      end
    RUBY
    "app/models/item.rb" => "class Item < ApplicationRecord\nend\n",
    "app/models/current.rb" => "class Current < ActiveSupport::CurrentAttributes\n  attribute :user\nend\n",
    "app/controllers/items_controller.rb" => <<~'RUBY'
      class ItemsController < ActionController::Base
        before_action { Current.user = params[:user] }
        around_action { |_, action| Time.use_zone(params[:zone] || "UTC", &action) }

        # What each place has of the request.
        def state
          render json: places { |place| seen(place) }
        end

        def reading
          render json: ApplicationRecord.connected_to(role: :reading) { places { |place| [seen(place), written] } }
        end

        def preventing
          render json: ApplicationRecord.while_preventing_writes { places { written } }
        end

        # The middleware has locked the shard.
        def another_shard
          render json: places { outcome { ApplicationRecord.connected_to(shard: :two) { Item.pluck(:name) } } }
        end

        def transaction
          places = nil
          Item.transaction do
            item = Item.create!(name: "new")
            own = connection
            places = places do
              [connection.equal?(own), connection.open_transactions, Item.pluck(:name),
                outcome { Item.find(item.id).name }, outcome { item.update!(name: "newer") }]
            end
            raise ActiveRecord::Rollback
          end
          render json: {places: places, left: Item.pluck(:name)}
        end

        # How many queries each place sends for one that the action has sent before.
        def query_cache
          Item.pluck(:name)
          render json: places { sent { Item.pluck(:name) } }
        end

        def events
          Rails.event.set_context(user: params[:user]) if params[:user]
          Rails.event.tagged("request") do
            render json: places { |place| Rails.event.notify("seen", place: place) || Thread.current[:last_event] }
          end
        end

        # What tasks set reaches neither the request nor other tasks.
        def events_of_tasks
          Rails.event.set_context(user: params[:user])
          Heddle.map(1..3) do |number|
            Rails.event.set_context(user: number)
            Rails.event.tagged(number.to_s) { sleep(0.01) }
          end
          events
        end

        def set
          Heddle.run { Current.user = "set in a run" }
          Heddle.run { Heddle.spawn { Current.user = "set in a task" }.value }
          render json: Current.user.to_json
        end

        def waiting
          3.times { sleep(0.05) && Item.pluck(:name) }
          render json: seen("waiting")
        end

        def pool
          render json: ApplicationRecord.connection_pool.stat
        end

        private

        def places
          {
            action: yield("action"),
            run: Heddle.run { yield("run") },
            run_in_run: Heddle.run { Heddle.run { yield("run_in_run") } },
            task: Heddle.run { Heddle.spawn { yield("task") }.value },
            run_in_task: Heddle.run { Heddle.spawn { Heddle.run { yield("run_in_task") } }.value },
            task_of_task: Heddle.run { Heddle.spawn { Heddle.spawn { yield("task_of_task") }.value }.value },
            pool: Heddle::FiberPool.new(2).map([1]) { yield("pool") }.first,
            map: Heddle.map([1]) { yield("map") }.first,
            offload: Heddle.run { Heddle.offload { yield("offload") } }
          }
        end

        def seen(place)
          logger.info("seen by #{place}")
          record = ApplicationRecord
          [Item.pluck(:name), record.current_shard, record.current_role, Current.user, Time.zone.name]
        end

        def written = outcome { Item.create!(name: "written") && "written" }

        def outcome
          yield
        rescue StandardError => error
          "#{error.class}: #{error.message}"
        end

        def connection
          record = ApplicationRecord
          record.respond_to?(:lease_connection) ? record.lease_connection : record.connection # until 7.2
        end

        def sent
          count = 0
          counter = ->(*, payload) { count += 1 unless payload[:cached] || payload[:name] == "SCHEMA" }
          ActiveSupport::Notifications.subscribed(counter, "sql.active_record") { yield }
          count
        end
      end
    RUBY
  }.freeze
  private_constant :FILES

  # @param path [String] of an action
  # @param id [String] of the request, for the log
  # @return [Object] its answer
  def get(path, id: "test", **parameters)
    uri = URI("#{url}/#{path}?#{URI.encode_www_form(parameters)}")
    answer = Net::HTTP.start(uri.host, uri.port, read_timeout: Slowness.stretch(PATIENCE), max_retries: 0) do |http|
      http.get(uri.request_uri, "X-Request-Id" => id)
    end
    raise "#{uri}: #{answer.code}\n#{log}\n#{written_log.lines.last(30).join}" unless answer.is_a?(Net::HTTPSuccess)

    JSON.parse(answer.body)
  end

  # @return [String] the text of its environment
  def self.environment = FILES.fetch("config/environment.rb")

  # What Rails has logged.
  def written_log = File.read("#{dir}/log/production.log")

  private

  def scheme = "http"

  def start_deadline = 60

  # By their paths in the application's folder.
  def files = FILES

  def prepare
    files.each do |path, text|
      path = File.join(dir, path)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
    end
    FileUtils.mkdir_p(%w[log storage].map { |folder| File.join(dir, folder) })
  end

  def environment = {**LoopHelpers.bundle, "RAILS_ENV" => "production"}

  def command
    puma = Gem.bin_path("puma", "puma")
    [RbConfig.ruby, "-W0", "-I#{ROOT}/lib", puma, "--dir", dir, "--threads", "#{THREADS}:#{THREADS}",
      "--bind", "tcp://#{host}:#{port}", "--environment", "production", "#{dir}/config.ru"]
  end

  def ready? = answers?("GET /pool HTTP/1.0\r\n\r\n", /\AHTTP\S+ 200 /)

  # On Puma with plugin :heddle: each request is a task of one thread.
  class OnFibers < RailsApplication
    CONFIGURATION = "plugin :heddle\nheddle fibers: 100\nthreads 1, 1\n"
    private_constant :CONFIGURATION

    private

    def files = {**super, "config/puma.rb" => CONFIGURATION}

    def command = super - ["--threads", "#{THREADS}:#{THREADS}"] + ["--config", "#{dir}/config/puma.rb"]
  end
end
