# frozen_string_literal: true

require "erb"
require "fileutils"
require "tmpdir"

# A Rails application with a job that waits, in a temporary folder. Its bin/jobs and its tables are those that Solid
# Queue's installer writes; its workers run jobs in fibers.
class SolidQueueApp
  ROOT = File.expand_path("../..", __dir__)

  # Seconds that a stop leaves to the jobs that run.
  GRACE = 3

  CONFIG = {
    "config/environment.rb" => <<~RUBY,
      ENV["RAILS_ENV"] = "production"
      require "logger"
      require "rails"
      require "active_record/railtie"
      require "active_job/railtie"
      require "solid_queue"
      require "net/http"

      class Application < Rails::Application
        config.root = File.expand_path("..", __dir__)
        config.load_defaults "\#{Rails::VERSION::MAJOR}.\#{Rails::VERSION::MINOR}"
        config.eager_load = true
        config.secret_key_base = "0" * 64
        config.logger = Logger.new($stdout)
        config.log_level = :warn # Rails sets the logger to it
        config.active_support.isolation_level = :fiber
        config.active_job.queue_adapter = :solid_queue
        config.solid_queue.shutdown_timeout = #{GRACE}
      end
      Rails.application.initialize!

      # Asked for when a process stops.
      SolidQueue.singleton_class.prepend(Module.new { def shutdown_timeout = File.exist?("hurry") ? 1 : super })

      SolidQueue.on_start do
        waits = [50] * Integer(ENV.fetch("SHORT_JOBS")) + [600_000] * Integer(ENV.fetch("ENDLESS_JOBS"))
        ActiveJob.perform_all_later(waits.each_with_index.map { |wait, i| WaitingJob.new(i, wait) })
      end
    RUBY
    "app/models/effect.rb" => <<~RUBY,
      class Effect < ActiveRecord::Base
      end
    RUBY
    "app/jobs/waiting_job.rb" => <<~'RUBY',
      # Waits for an HTTP server, then for the database.
      class WaitingJob < ActiveJob::Base
        def perform(number, milliseconds)
          Net::HTTP.get(URI("#{ENV.fetch("SLOW_SERVER")}/#{milliseconds}"))
          Effect.transaction { Effect.create!(number: number, runner: Fiber.scheduler.class.name) }
        end
      end
    RUBY
    "config/database.yml" => <<~YAML,
      production:
        url: <%= @database %>
        pool: 8
        timeout: 10000
    YAML
    "config/queue.yml" => <<~YAML
      production:
        dispatchers:
          - polling_interval: 0.1
        workers:
          - queues: "*"
            fibers: <%= @fibers %>
            polling_interval: 0.05
    YAML
  }.freeze

  # The URL of the database.
  attr_reader :database

  # @param database [String] the URL of an empty database
  def initialize(database, fibers:, server:)
    @database = database
    @fibers = fibers
    @server = server
    @folder = Dir.mktmpdir("heddle-solid-queue-")
    @database = @database.sub("FOLDER", @folder)
    CONFIG.each { |path, text| write(path, path.end_with?(".yml") ? ERB.new(text).result(binding) : text) }
    write("bin/jobs", File.read("#{templates}/bin/jobs"))
  end

  # Creates the tables.
  def prepare(connection)
    ActiveRecord::Schema.verbose = false
    load "#{templates}/db/queue_schema.rb"
    connection.create_table(:effects) do |table|
      table.integer :number
      table.string :runner
    end
  end

  # Starts bin/jobs, which enqueues at first so many jobs that wait 50 ms, and then so many that wait ten minutes. Its
  # output goes to {#log}.
  def start(short:, endless:)
    environment = {"SHORT_JOBS" => short.to_s, "ENDLESS_JOBS" => endless.to_s, "SLOW_SERVER" => @server,
                   "RUBYOPT" => "-W0 -I#{ROOT}/lib -rbundler/setup -rheddle/async"}
    Process.spawn(environment, RbConfig.ruby, "bin/jobs", chdir: @folder, out: ["#{@folder}/log", "a"],
      err: [:child, :out], pgroup: true)
  end

  # From now on a stop leaves one second.
  def hurry = write("hurry", "")

  def log = File.exist?("#{@folder}/log") ? File.read("#{@folder}/log") : ""

  def delete = FileUtils.rm_rf(@folder)

  private

  def templates
    "#{Gem.loaded_specs.fetch("solid_queue").full_gem_path}/lib/generators/solid_queue/install/templates"
  end

  def write(path, text)
    path = File.join(@folder, path)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
  end
end
