# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# heddle/rails: its settings, what it says at the boot, heddle:doctor and heddle:install, each in an application of its
# own.
class RailtieTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120
  mode :thread

  def test_settings
    out = application(<<~SETTINGS, <<~RUBY)
      config.heddle.net_http = true
      config.heddle.timeout = true
      config.heddle.deadline = 3
      config.heddle.deadline_headers = true
    SETTINGS
      p ActiveSupport::IsolatedExecutionState.isolation_level, Heddle::NetHTTP.enabled?, Heddle::TimeoutSupport.enabled?
      p Net::HTTP < Heddle::DeadlineHeader
      Rails.application.routes.draw { get "left", to: ->(_) { [200, {}, [Heddle.remaining.to_s]] } }
      get = ->(headers) { Rails.application.call(Rack::MockRequest.env_for("/left", headers)).last.each.to_a.join.to_f }
      p get.call({}).between?(2, 3), get.call({"HTTP_REQUEST_TIMEOUT" => "0.5"}).between?(0.1, 0.5)
    RUBY
    assert_equal [":fiber", *["true"] * 5], out.out.split, out.err
    assert_empty out.err
  end

  def test_defaults
    out = application("", <<~RUBY)
      p ActiveSupport::IsolatedExecutionState.isolation_level
      p Net::HTTP.private_method_defined?(:transport_request_without_heddle)
      p Net::HTTP.ancestors.first.equal?(Net::HTTP)
      p Rails.application.middleware.any? { |one| one.name.start_with?("Heddle") }
    RUBY
    assert_equal [":fiber", "false", "true", "false"], out.out.split, out.err
    assert_empty out.err
  end

  def test_what_a_request_has_set_reaches_tasks_without_active_record
    out = application("", <<~RUBY)
      class Current < ActiveSupport::CurrentAttributes
        attribute :user
      end
      log = StringIO.new
      logger = ActiveSupport::TaggedLogging.new(Logger.new(log, formatter: ->(*, text) { "\#{text}\\n" }))
      seen = -> { logger.info(Current.user) && [Current.user, Time.zone.name] }
      Current.user = "ann"
      Time.zone = "Tokyo"
      logger.tagged("request 7") do
        p Heddle.run(&seen), Heddle.run { Heddle.spawn(&seen).value }, Heddle.map([1]) { seen.call }.first,
          Heddle.run { Heddle.offload(&seen) }
      end
      puts log.string
      p defined?(ActiveRecord)
    RUBY
    assert_equal [*[%(["ann", "Tokyo"])] * 4, *["[request 7] ann"] * 4, "nil"], out.out.lines(chomp: true), out.err
  end

  def test_load_async_on_an_executor
    out = application(<<~SETTINGS, <<~RUBY, adapter: "sqlite3")
      require "heddle/executor"
      config.active_record.async_query_executor = Heddle::Executor.new(fibers: 3)
    SETTINGS
      ActiveRecord::Base.connection_pool.with_connection { |it| it.create_table(:items) { |t| t.string :name } }
      class Item < ActiveRecord::Base
      end
      Item.create!(name: "lamp")
      names = Rails.application.executor.wrap do
        Heddle.run { Array.new(5) { |i| Item.where("0 < ?", i + 1).load_async }.map { |items| items.map(&:name) } }
      end
      p names, ActiveRecord.async_query_executor.scheduled_task_count >= 5
    RUBY
    assert_equal "#{[["lamp"]] * 5}\ntrue\n", out.out, out.err
  end

  def test_checks
    out = application(<<~SETTINGS, "", adapter: "mysql2", pool: 3)
      module ::Rack; module Timeout; end; end
      config.active_support.isolation_level = :thread
      config.heddle.fibers = 20
    SETTINGS
    ["isolation_level = :thread", "rack-timeout", /of 20 tasks 3 have a connection to primary.*: 20 in config/,
      'require "heddle/mysql2"'].each { |part| assert_match part, out.err }
    assert_equal 4, out.err.lines.grep(/\Aheddle: /).size, out.err
  end

  def test_checks_that_are_switched_off
    out = application(<<~SETTINGS, "")
      config.heddle.checks = false
      config.active_support.isolation_level = :thread
    SETTINGS
    assert_empty out.err
  end

  def test_doctor
    out = application("", <<~RUBY)
      Rails.application.load_tasks
      Rake::Task["heddle:doctor"].invoke
    RUBY
    assert_match(/^ok two calls by Net::HTTP: one takes \d+ ms, both \d+ ms; other tasks stood still for \d+ ms$/,
      out.out, out.err)
  end

  # On the gem sqlite3, which stops all tasks, unless heddle/sqlite3 makes it give way.
  def test_doctor_of_the_database
    ["", 'require "heddle/sqlite3"'].each do |support|
      out = application(support, <<~RUBY, adapter: "sqlite3")
        require "heddle/rails/doctor"
        ActiveRecord::Base.establish_connection
        p Heddle::Rails::Doctor.new(Rails.application).run
      RUBY
      stops = /^!  a query of the gem sqlite3 stops.*^!  two queries to primary: .*^false$/m
      assert_match support.empty? ? stops : /^ok two queries to primary: .*^true$/m, out.out, out.err
    end
  end

  def test_doctor_of_a_database_whose_queries_do_not_overlap
    out = application("", <<~RUBY)
      require "heddle/rails/doctor"
      doctor = Heddle::Rails::Doctor.new(Rails.application)
      lock = Thread::Mutex.new
      p doctor.send(:try, "waits") { lock.synchronize { sleep 0.1 } }
      p doctor.send(:try, "stops") { Heddle::Clock.now.then { |began| nil while Heddle::Clock.now < began + 0.1 } }
      p doctor.send(:try, "fails") { raise KeyError, "what is missing" }
    RUBY
    assert_match(/\A!  waits: .*\nfalse\n!  stops: .*\nfalse\n!  fails: KeyError: what is missing\nfalse\n\z/, out.out,
      out.err)
  end

  # While the code changes again and again. On Ruby 3.1 no class may wait while it is loaded: see doc/limits.md.
  def test_reloads_while_fifty_tasks_load_classes
    out = application(<<~SETTINGS, <<~RUBY)
      config.enable_reloading = true
      config.eager_load = false
      def self.write(version)
        FileUtils.mkdir_p(config.root.join("app/models"))
        50.times do |number|
          config.root.join("app/models/part\#{number}.rb").write(<<~PART)
            class Part\#{number}
              #{"sleep 0.0001" if ruby_at_least?("3.2")}
              VERSION = \#{version}
            end
          PART
        end
      end
      write(0)
    SETTINGS
      app = Rails.application
      version = 0
      app.reloader.before_class_unload { Shop.write(version += 1) }
      version_of = ->(number) { Object.const_get("Part\#{number}")::VERSION }
      seen = Heddle.run do
        reloads = Heddle.spawn { 20.times { app.reloader.reload! || sleep(0.001) } }
        tasks = Array.new(50) do |first|
          Heddle.spawn do
            found = []
            until reloads.ended? && found.any?
              app.reloader.wrap do
                numbers = Array.new(4) { |step| (first + 11 * step) % 50 }
                found << (numbers.map(&version_of) +
                  Heddle.map(numbers) { |number| app.executor.wrap { version_of.call((number + 1) % 50) } }).uniq
              end
              sleep(0.001)
            end
            found
          end
        end
        reloads.value
        tasks.map(&:value)
      end
      p version, seen.flatten(1).map(&:size).uniq, seen.all? { |found| found.last == [20] }, seen.flatten.uniq.size > 3
    RUBY
    assert_equal %w[20 [1] true true], out.out.split, out.err
  end

  def test_install
    out = application("", <<~RUBY)
      require "rails/generators"
      Rails::Generators.invoke("heddle:install", ["--quiet"], destination_root: Rails.root.to_s)
      settings = Rails.root.join("config/initializers/heddle.rb").read
      eval(settings)
      p Rails.application.config.heddle.net_http
    RUBY
    assert_equal "true\n", out.out, out.err
  end

  private

  # @return what an application with these settings printed, in which this Ruby ran after its initialization
  def application(settings, ruby, adapter: nil, pool: 5)
    Dir.mktmpdir do |folder|
      Dir.mkdir("#{folder}/config")
      key = (Gem.loaded_specs.fetch("activerecord").version >= Gem::Version.new("8.1")) ? "max_connections" : "pool"
      File.write("#{folder}/config/database.yml", <<~YAML)
        test: {adapter: #{adapter || "sqlite3"}, database: "#{folder}/test.sqlite3", #{key}: #{pool}}
      YAML
      in_child(<<~RUBY, heddle: false, gems: true, timeout: 60, env: {"RAILS_ENV" => "test"})
        require "logger"
        require "rails"
        #{'require "active_record/railtie"' if adapter}
        require "action_controller/railtie"
        require "net/http"
        require "heddle/rails"
        class Shop < Rails::Application
          config.root = #{folder.inspect}
          config.load_defaults "\#{Rails::VERSION::MAJOR}.\#{Rails::VERSION::MINOR}"
          config.eager_load = #{!ruby_at_least?("3.2")} # without it Heddle warns on Ruby 3.1
          config.secret_key_base = "0" * 64
          config.logger = Logger.new(nil)
          config.hosts.clear
          #{settings.gsub("\n", "\n    ")}
        end
        Rails.application.initialize!
        #{ruby}
      RUBY
    end
  end
end
