# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "tmpdir"
require "support/servers"

# good_job's own program, `good_job start`, with its jobs in tasks: more of them at once than connections to PostgreSQL,
# and stopped in the middle.
class GoodJobTest < Minitest::Test
  mode :fiber
  hard_deadline 120

  SHORT = 100
  ENDLESS = 10
  TASKS = 60
  CONNECTIONS = 6

  ENVIRONMENT = <<~'RUBY'
    ENV["RAILS_ENV"] = "production"
    require "logger"
    require "rails"
    require "active_record/railtie"
    require "active_job/railtie"
    require "heddle/good_job"

    class Application < Rails::Application
      config.root = File.expand_path("..", __dir__)
      config.load_defaults "#{Rails::VERSION::MAJOR}.#{Rails::VERSION::MINOR}"
      config.eager_load = false
      config.secret_key_base = "0" * 64
      config.logger = Logger.new($stdout, level: Logger::WARN)
      config.log_level = :warn
      config.active_support.isolation_level = :fiber
      config.active_job.queue_adapter = :good_job
      config.good_job.lock_strategy = :skiplocked
    end
    Rails.application.initialize!

    class Effect < ActiveRecord::Base
    end

    class WaitingJob < ActiveJob::Base
      def perform(number, seconds)
        sleep(seconds)
        Effect.create!(number: number)
      end
    end

    class LateJob < ActiveJob::Base
      heddle_deadline 0.2
      retry_on(Heddle::DeadlineExceeded, attempts: 1) { Effect.create!(number: -1) }

      def perform = Effect.connection.select_value("select pg_sleep(600)")
    end
  RUBY

  # Creates the tables, and enqueues the jobs.
  FILL = <<~'RUBY'
    require "./config/environment"
    require "erb"
    templates = "#{Gem.loaded_specs.fetch("good_job").full_gem_path}/lib/generators/good_job/templates"
    def migration_version = "[#{Rails::VERSION::MAJOR}.#{Rails::VERSION::MINOR}]"
    eval(ERB.new(File.read("#{templates}/install/migrations/create_good_jobs.rb.erb")).result(binding))
    ActiveRecord::Migration.verbose = false
    CreateGoodJobs.new.change
    ActiveRecord::Base.connection.create_table(:effects) { |table| table.integer :number }
    short, endless = ARGV.map { |count| Integer(count) }
    endless.times { |number| WaitingJob.perform_later(number + short, 600) }
    LateJob.perform_later
    short.times { |number| WaitingJob.perform_later(number, 0.3) }
  RUBY

  def setup
    skip "the newest good_job wants Ruby 3.2" unless Gem.loaded_specs.key?("good_job")
    require "pg"
    @server = Servers.postgresql
    @admin = PG.connect(@server.url)
    @admin.exec("create database good_job")
    @url = @server.url.sub(%r{[^/]+\z}, "good_job")
    @folder = Dir.mktmpdir("heddle-good-job-")
    FileUtils.mkdir_p("#{@folder}/config")
    File.write("#{@folder}/config/environment.rb", ENVIRONMENT)
    File.write("#{@folder}/fill.rb", FILL)
  end

  def teardown
    Process.kill(:KILL, @pid) && Process.wait(@pid) if @pid
    @database&.close
    @admin&.exec("drop database if exists good_job with (force)")
    @admin&.close
    FileUtils.rm_rf(@folder) if @folder
  end

  def test_each_job_is_done_once_or_handed_back
    pid = start("fill.rb", SHORT.to_s, ENDLESS.to_s)
    Process.wait(pid)
    assert_predicate $?, :success?, log
    @database = PG.connect(@url)
    @pid = start(Gem.bin_path("good_job", "good_job"), "start", "--max-threads=#{TASKS}", "--shutdown-timeout=1")
    connections = 0
    wait_until(60, what: "the short jobs\n#{log}") do
      connections = [connections, value("select count(*) from pg_stat_activity where datname = 'good_job'")].max
      value("select count(*) from effects") > SHORT || !sleep(0.05)
    end
    done = @database.exec("select number from effects order by number").column_values(0)
    assert_equal [-1, *0...SHORT], done.map(&:to_i)
    running = "select count(*) from pg_stat_activity where state = 'active' and query like '%pg_sleep(600)'"
    assert_equal 0, value(running)
    # The test's own, the one that listens, and the pool's.
    assert_operator connections, :<=, CONNECTIONS + 2
    Process.kill(:TERM, @pid)
    assert_within(20, remeasure: 0) { Process.wait(@pid) }
    @pid = nil
    back = value("select count(*) from good_jobs where finished_at is null and locked_by_id is null")
    assert_equal ENDLESS, back, log
  end

  private

  def start(*arguments)
    environment = {"DATABASE_URL" => "#{@url}?pool=#{CONNECTIONS}",
                   "RUBYOPT" => "-W0 -I#{File.expand_path("../../lib", __dir__)} -rbundler/setup"}
    Process.spawn(environment, RbConfig.ruby, *arguments, chdir: @folder, out: ["#{@folder}/log", "a"],
      err: [:child, :out])
  end

  def log = File.read("#{@folder}/log").then { |text| text[-3000..] || text }

  def value(query) = @database.exec(query).getvalue(0, 0).to_i
end
